// Lesson 1: one decoding step of Llama-3.1-8B over a paged KV cache.
//
// Each sequence of the batch brings one query row (or a few); its keys and values lie in pages of 16 tokens that a
// block table lists. 32 query heads share 8 KV heads, so 4 query heads read the same keys: they are packed into one
// tile of the kernel, and every byte of the cache is read once.
//
//   attn-opt decode.mlir --target=sm_90a --emit=ptx -o decode.ptx
//   attn-run decode.mlir --dim batch=8 --dim kv_len=100..2000 --check
!query = tensor<?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!lse = tensor<?x?xf32>

func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!query, !lse) {
  %o, %lse = attn.attend %q over (%kv see causal) scale 0.08838835 : !query, !cache -> !query, !lse
  return %o, %lse : !query, !lse
}
