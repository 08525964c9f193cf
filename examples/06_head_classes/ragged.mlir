// Lesson 6, third part: heads that keep as much as they need.
//
// Methods that compress a cache do not treat heads alike: AdaKV (arXiv 2407.11550) gives each a budget of its own, DiffKV
// (arXiv 2412.03131) keeps some tokens of a head precisely, others roughly, and drops the rest. `ragged` is such a store:
// every head of every instance has a length and a row of the block table. Slice h of a page belongs to head h and the
// next head's slice is another list's business, so no page is wasted on a head that is through with its tokens.
//
// Here tokens that matter lie in `kept`, and the latest, which nobody has judged yet, in `recent`, which all heads share.
// The planner deals out heads of different length in equal shares of time. Tokens that a method has dropped leave no
// gap: a token's position is its place in the head's list, so what is left of a prompt is seen by `all`.
//
// `--dim kv_len=LOW..HIGH` draws a length for every head of every sequence.
//
//   attn-run ragged.mlir --dim batch=4 --dim kv_len=50..3000 --dim recent_len=200 --check
!query = tensor<?x32x128xbf16>
!kept = !attn.kv<paged<16>, ragged, heads = 8, dim = 128, key = bf16, value = bf16>
!recent = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @ragged(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kept: !kept {attn.name = "kept", attn.dims = ["batch", "kv_len"]},
                  %recent: !recent {attn.name = "recent", attn.dims = ["batch", "recent_len"]})
    -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%kept see all), (%recent see causal)
      : !query, !kept, !recent -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
