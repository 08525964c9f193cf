// Lesson 6: heads that see less. Most heads of a long-context model look at a few first and at the last tokens only.
//
// DuoAttention (arXiv 2410.10819) calls them streaming heads, and the others retrieval heads. A class narrows what the
// regions show to its heads; `see all` narrows nothing. Which KV head is in which class is a tensor, like the numbers 64
// and 256: one kernel serves every layer of the model, and one plan all layers with as many heads in each class. Long
// and short heads are work of different cost in one list, so the GPU's blocks are equally busy, and what no row of a
// streaming head sees is not read.
//
// `--dim` takes the number of heads in a class; without it they take turns.
//
//   attn-run head_classes.mlir --dim batch=4 --dim kv_len=1000..4000 --dim streaming=6 --check
!query = tensor<?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!classes = tensor<8xi32>

func.func @head_classes(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                        %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]},
                        %classes: !classes {attn.name = "classes"}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal)
      heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
      : !query, !cache, !classes -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
