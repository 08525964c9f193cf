// Lesson 10: gradients. Responses to one prompt, as they are trained: forward shares the prompt, and so does backward.
//
// The text is that of the forward pass, marked `attn.backward`. Its kernels take what the forward pass left (`o`, `lse`)
// and the gradient of its output (`do`, and `dlse` where the LSE is a result), and give `dq` and, of every region, keys'
// and values': `prompt.dk`, `prompt.dv`, `response.dk`, `response.dv`. They are derived from the same updates; rows are
// stationary for dq, tokens for the others; on Hopper the kernels of tokens add to dq, too. A token's gradients are summed
// in fp32 over all rows that see it and all heads of its group before they are rounded, without atomics.
//
//   attn-run shared_backward.mlir --dim batch=3 --dim q_len=20..60 --dim kv_len=20..60 --dim prompts=1 --dim prompt_len=100 --check
!query = tensor<?x8x64xbf16>
!lse = tensor<?x8xf32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>

func.func @shared_backward(%q: !query {attn.name = "q"},
                           %prompt: !kv {attn.name = "prompt", attn.dims = ["prompts", "prompt_len"]},
                           %response: !kv {attn.name = "response"}) -> (!query, !lse) attributes {attn.backward} {
  %o, %lse = attn.attend %q over (%prompt see all), (%response see causal) : !query, !kv, !kv -> !query, !lse
  return %o, %lse : !query, !lse
}
