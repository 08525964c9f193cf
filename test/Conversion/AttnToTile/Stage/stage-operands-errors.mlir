// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-stage-operands

!query = tensor<?x8x64xbf16>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel with a tile.schedule and tile.parameters}}
  func.func @schedule(%q: !query {attn.name = "q"}, %i: i32) attributes {tile.parameters = []} {
    %r = attn.rows %q [%i for %i] head %i ordinal %i from %i : !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel that walks the plan: --attn-walk-plan makes it}}
  func.func @walk(%q: !query {attn.name = "q"}, %i: i32) attributes {tile.parameters = [], tile.schedule = #rows16} {
    %r = attn.rows %q [%i for %i] head %i ordinal %i from %i : !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = bf16, traits = none>

gpu.module @kernels {
  func.func @loops(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %i: i32) attributes {attn.form = #form, tile.parameters = [], tile.schedule = #rows16} {
    tile.start_next
    %r = attn.rows %q [%i for %i] head %i ordinal %i from %i : !query
    %0 = attn.init %r : !query -> !state
    // expected-error @+1 {{expected a loop over tiles in one over segments around it}}
    %1 = attn.update %0, %r, %kv see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return
  }
}
