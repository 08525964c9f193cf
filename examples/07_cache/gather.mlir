// Lesson 7, the way out: rows of a cache, one behind the other.
//
// To swap a sequence out to the host's memory, to send it to another machine, or to look at it, its slots are listed and
// gathered into rows. An append with the same list puts them back, into the same pages or others.
//
//   attn-run gather.mlir --dim layers=4 --dim rows=100 --check
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @gather(%kv: !cache {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !cache, tensor<?xi32> -> !rows, !rows
  return %k, %v : !rows, !rows
}
