// Lesson 8: everything that shares, in one launch. A batch of deep trees, speculated tokens at the leaves, and heads of
// two classes.
//
// trees.json holds one decoding step: two prompts, prefixes behind them, conversations behind those, candidates, and a
// tree of speculated tokens behind each candidate. A node is an instance: some tokens, the position of the first, and
// the rows that see it. Rows are numbered depth-first, so these are two integers, and no mask is needed however deep the
// tree or wide the draft.
//
// Nodes lie in pages of 16 tokens. Speculated tokens have a store of their own in pages of one, as in attn's cache: most
// of their nodes are a single token. One softmax goes over both; `causal` tells apart the rows of one chain. Streaming
// heads see the first and the last tokens of the *path* that a row has, so rows at different depths have windows of
// their own.
//
// The planner reads a node once for all rows below it, where that saves more bytes than the partial results cost, and
// the merge joins the parts of a row along its path. Look at the picture: regions hang in it as the trees do, and below
// them is what every block does.
//
//   attn-run composed.mlir --workload trees.json --check --svg plan.svg
//   attn-run composed.mlir --workload trees.json --check --strategy=by-query --dim streaming=3
!query = tensor<?x16x128xbf16>
!pages = !attn.kv<paged<16>, heads = 4, dim = 128, key = bf16, value = bf16>
!tokens = !attn.kv<paged<1>, heads = 4, dim = 128, key = bf16, value = bf16>
!classes = tensor<4xi32>

func.func @composed(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                    %nodes: !pages {attn.name = "nodes", attn.dims = ["node_count", "node_len"]},
                    %drafts: !tokens {attn.name = "drafts", attn.dims = ["draft_count", "draft_len"]},
                    %classes: !classes {attn.name = "classes"}) -> (!query, tensor<?x16xf32>) {
  %o, %lse = attn.attend %q over (%nodes see causal), (%drafts see causal)
      heads %classes {retrieval: see all, streaming: see sink(16) | recent(64)}
      : !query, !pages, !tokens, !classes -> !query, tensor<?x16xf32>
  return %o, %lse : !query, tensor<?x16xf32>
}
