// Lesson 3: a score region. Gemma 2 limits every score to (-50, 50) by a smooth cap before the softmax.
//
// The region is called for every visible pair with the scaled score, the query head and both positions, and yields
// the score that enters the softmax. Constants may stand outside.
//
//   attn-run softcap.mlir --dim batch=3 --dim kv_len=500 --check
!query = tensor<?x16x256xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 256, key = bf16, value = bf16>

func.func @softcap(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                   %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query {
  %cap = arith.constant 50.0 : f32
  %inverse = arith.constant 0.02 : f32
  %o = attn.attend %q over (%kv see window(4096)) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %x = arith.mulf %s, %inverse : f32
      %y = math.tanh %x : f32
      %z = arith.mulf %y, %cap : f32
      attn.yield %z : f32
    } : !query, !cache -> !query
  return %o : !query
}
