// Lesson 5: two regions. Sequences that share a long context keep it once, and their own responses in pages.
//
// Every row sees all of the context instance that its sequence shares, and its own response causally. The result is
// one softmax over both: partial softmax is a monoid, so regions are visited in any order and merged. The context's
// tokens are read once for all rows that see them, not once per sequence.
//
// `attn.dims` names what a run chooses: how many contexts there are and how long they are, next to the batch and the
// length of the responses.
//
//   attn-run shared_prefix.mlir --dim batch=16 --dim contexts=1 --dim context_len=4096 --dim kv_len=1..300 --check
!query = tensor<?x32x128xbf16>
!context = !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16>
!response = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @shared_prefix(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                         %context: !context {attn.name = "context", attn.dims = ["contexts", "context_len"]},
                         %response: !response {attn.name = "response", attn.dims = ["batch", "kv_len"]})
    -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%context see all), (%response see causal)
      : !query, !context, !response -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
