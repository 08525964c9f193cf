// Latent attention (MLA) of DeepSeek-V2 and V3: 128 query heads read one latent per token, 512 features and 64 rotated
// ones. The value is the first 512 features of the key: one line of memory, one tensor `kv.k_pages`, one read.
//
//   attn-opt latent.mlir --emit=ptx
//   attn-run latent.mlir --dim batch=2 --dim kv_len=200 --check

!query = tensor<?x128x576xbf16>
!output = tensor<?x128x512xbf16>
!latents = !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>
func.func @latent(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !latents {attn.name = "kv"}) -> (!output, tensor<?x128xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal) scale 0.07216878
      : !query, !latents -> !output, tensor<?x128xf32>
  return %o, %lse : !output, tensor<?x128xf32>
}
