// Lesson 7, one launch for a layer: new keys are normalized, rotated and quantized on their way into the cache.
//
// Models apply an RMS norm and a rotary position embedding to keys and queries before attention. Done apart, each reads and
// writes all of them again. `attn.append` does both on the way: a warp holds some heads of a row, reads the row's cosines
// and sines once, and rounds each number once, at the end. Queries come back as the operation's result.
//
// The tables are data: one row of cosines and sines for each position, so that YaRN and Llama 3 need no code of their own.
// Here 64 of 128 features turn, as pairs (i, i + 32); with `interleaved` the pairs are (2 * i, 2 * i + 1).
//
//   attn-opt prepare.mlir --target=sm_90a --emit=ptx -o prepare.ptx
//   attn-run prepare.mlir --dim layers=2 --dim rows=100 --check
!rows = tensor<?x?x2x128xbf16>
!queries = tensor<?x?x8x128xbf16>
!table = tensor<?x32xf32>
!cache = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>

func.func @prepare(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                   %slots: tensor<?xi32> {attn.name = "slots"}, %q: !queries {attn.name = "q"},
                   %wk: tensor<?x128xf32> {attn.name = "k_norm"}, %wq: tensor<?x128xf32> {attn.name = "q_norm"},
                   %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"},
                   %positions: tensor<?xi32> {attn.name = "positions"}) -> !queries {
  %rotated = attn.append %k, %v to %kv at %slots query %q : !queries
      norm %wk : tensor<?x128xf32> epsilon 1.0e-6 query_norm %wq : tensor<?x128xf32>
      rotate %cos, %sin at %positions : !table, !table, tensor<?xi32>
      : !rows, !rows, !cache, tensor<?xi32> -> !queries
  return %rotated : !queries
}
