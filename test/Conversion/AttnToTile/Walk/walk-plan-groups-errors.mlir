// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule --attn-make-kernels --attn-walk-plan

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

func.func @merge(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows128]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected a single chain of updates for #tile.schedule<wgmma}}
  %2 = attn.merge %1, %1 : !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

// A state that is used twice is no chain, even if one use leads nowhere.
func.func @branch(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows128]} {
  %0 = attn.init %q : !query -> !state
  // expected-error @+1 {{expected a single chain of updates for #tile.schedule<wgmma}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %2 = attn.update %1, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return
}
