// Lesson 6, second part: heads that keep less. A streaming head need not store the tokens that it does not see.
//
// In head_classes.mlir every KV head has every token in memory. Here each class has a store of its own: `for retrieval`
// makes a region one that retrieval heads alone see, and `heads = ?` a store that holds only theirs, as many as the
// tensor `classes` says. Streaming heads keep the last few hundred tokens (and, as a second instance of the same
// operand, the first ones: the runtime's Cache makes both, and gives the pages in between back to its pool). Still one
// kernel, one plan and one launch.
//
// `attn-run` makes one instance for each sequence; that of the streaming heads ends where the sequence ends.
//
//   attn-run class_stores.mlir --dim batch=4 --dim kv_len=1000..4000 --dim recent_len=300 --dim streaming=6 --check
!query = tensor<?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = ?, dim = 128, key = bf16, value = bf16>
!classes = tensor<8xi32>

func.func @class_stores(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                        %full: !cache {attn.name = "full", attn.dims = ["batch", "kv_len"]},
                        %recent: !cache {attn.name = "recent", attn.dims = ["batch", "recent_len"]},
                        %classes: !classes {attn.name = "classes"}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%full see causal for retrieval), (%recent see causal for streaming)
      heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
      : !query, !cache, !cache, !classes -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
