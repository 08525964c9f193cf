// Lesson 4: everything at once. A streaming cache (the first 64 tokens and the last 256), ALiBi, and a learned sink.
//
// A visibility is an expression over intervals, and no mask is ever stored. ALiBi's slopes are a tensor argument that
// the score region reads. The sink logit joins the softmax of its head and carries no value, which lets a head look
// at nothing.
//
//   attn-run composition.mlir --dim batch=4 --dim kv_len=1..1500 --check
!query = tensor<?x28x128xf16>
!cache = !attn.kv<paged<64>, heads = 4, dim = 128, key = f16, value = f16>
!heads = tensor<28xf32>

func.func @composition(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                       %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]},
                       %logits: !heads {attn.name = "sink_logits"},
                       %slopes: !heads {attn.name = "slopes"}) -> (!query, tensor<?x28xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal & (sink(64) | recent(256))) sinks %logits score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %slope = attn.read %slopes[%head] : !heads
      %distance = arith.subi %k_pos, %q_pos : i32
      %d = arith.sitofp %distance : i32 to f32
      %bias = arith.mulf %slope, %d : f32
      %t = arith.addf %s, %bias : f32
      attn.yield %t : f32
    } : !query, !cache, !heads -> !query, tensor<?x28xf32>
  return %o, %lse : !query, tensor<?x28xf32>
}
