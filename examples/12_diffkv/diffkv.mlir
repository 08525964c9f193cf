// Lesson 12: tokens in many bits, in few, or not at all.
//
// DiffKV (arXiv 2412.03131) keeps what a head looks at in 8 bits for keys and 4 for values, what it hardly looks at in 4
// and 2, and drops the rest; each KV head by itself. To a kernel those are two operands of one attention: both ragged, for
// heads keep different numbers of either kind, each with a format of its own, all of it seen, for a token that is kept was
// seen by rows before. Pages of few bits hold twice as many tokens.
//
// The rows of a step, their lists and both formats are one launch with one plan, which deals out heads by what they cost.
//
//   attn-run diffkv.mlir --dim batch=4 --dim kv_len=20..900 --dim low_len=0..1500 --check
!query = tensor<?x32x128xbf16>
!high = !attn.kv<paged<32>, ragged, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!low = !attn.kv<paged<64>, ragged, heads = 8, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>

func.func @diffkv(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %high: !high {attn.name = "high", attn.dims = ["batch", "kv_len"]},
                  %low: !low {attn.name = "low", attn.dims = ["batch", "low_len"]}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%high see all), (%low see all)
      : !query, !high, !low -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
