// Lesson 11: an application without a compiler. Three functions of one cache, to be compiled into one file that a program
// loads: attention over the pages, and the two operations that change them.
//
//   attn-opt serve.mlir --emit=artifact --target=sm_90a,sm_80 --host-code -o serve.attn
//   attn-run serve.mlir --entry=attend --dim batch=3 --dim kv_len=20..90 --check
!query = tensor<?x8x64xbf16>
!rows = tensor<?x?x2x64xbf16>
!slots = tensor<?xi32>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>

func.func @attend(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !query, !cache -> !query
  return %o : !query
}

func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: !slots {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, !slots
  return
}

func.func @move(%kv: !cache {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !cache, !slots, !slots
  return
}
