// The kernels of a decoding step of Llama-3.1-8B's attention: attention over pages, and the operations that change them.
!query = tensor<?x32x128xbf16>
!rows = tensor<?x?x8x128xbf16>
!slots = tensor<?xi32>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @attend(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
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
