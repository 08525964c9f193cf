// Lesson 7, continued: rows that move within the cache.
//
// When two sequences begin to differ within a page, the page is copied for one of them; when a tree of speculated tokens
// was verified, the accepted path is moved behind its sequence. Both are lists of slots to read and slots to write. No slot
// may be in both: then the rows may be copied in any order, and a GPU copies them all at once.
//
//   attn-run move.mlir --dim layers=4 --dim rows=48 --check
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!slots = tensor<?xi32>

func.func @move(%kv: !cache {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !cache, !slots, !slots
  return
}
