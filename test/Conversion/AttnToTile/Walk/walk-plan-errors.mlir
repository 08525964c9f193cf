// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-walk-plan

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel with a tile.schedule, or one that finishes attn.parts with a tile.merge_schedule}}
  func.func @none(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}
