// Lesson 14, new lines of a cache of latents: DeepSeek normalizes the latent, its first 512 features, and turns the 64 features
// after it. One launch does both on the way into the cache. A warp holds a line in three loads, and only the last load has
// features that turn.
//
// The queries of the same tokens turn in the same launch. They are their rotated features alone: the other features of an
// absorbed query come from another product, so that the launch says how far the heads of `q` are apart.
//
//   attn-opt append.mlir --target=sm_90a --emit=ptx -o append.ptx
//   attn-run append.mlir --dim layers=2 --dim rows=100 --check
!lines = tensor<?x?x1x576xbf16>
!turned = tensor<?x?x128x64xbf16>
!table = tensor<?x32xf32>
!latents = !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>

func.func @append(%k: !lines {attn.name = "k"}, %kv: !latents {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}, %q: !turned {attn.name = "q"},
                  %w: tensor<?x512xbf16> {attn.name = "k_norm"}, %cos: !table {attn.name = "cos"},
                  %sin: !table {attn.name = "sin"}, %positions: tensor<?xi32> {attn.name = "positions"}) -> !turned {
  %rotated = attn.append %k to %kv at %slots query %q : !turned
      norm %w : tensor<?x512xbf16> epsilon 1.0e-6
      rotate %cos, %sin at %positions : !table, !table, tensor<?xi32> from 512 interleaved
      : !lines, !latents, tensor<?xi32> -> !turned
  return %rotated : !turned
}
