// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-expand-online

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel that walks the plan: --attn-walk-plan makes it}}
  func.func @walk(%q: !query {attn.name = "q"}) {
    %0 = attn.init %q : !query -> !state
    %o = attn.finish %0 : !state -> !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>

gpu.module @kernels {
  // expected-error @+1 {{expected an attn.form: --attn-walk-plan sets it}}
  func.func @formless(%q: !query {attn.name = "q"}) attributes {tile.parameters = [], tile.schedule = #rows16} {
    %0 = attn.init %q : !query -> !state
    %o = attn.finish %0 : !state -> !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64,
                   key_tile = 64, value_tile = 64, element = bf16, traits = none>

gpu.module @kernels {
  func.func @rowless(%q: !query {attn.name = "q"}) attributes {tile.parameters = [], tile.schedule = #rows16, attn.form = #form} {
    %0 = attn.init %q : !query -> !state
    // expected-error @+1 {{expected the rows of its results: --attn-walk-plan adds them}}
    %o = attn.finish %0 : !state -> !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64,
                   key_tile = 64, value_tile = 64, element = bf16, traits = none>

gpu.module @kernels {
  func.func @unstaged(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %i: i32) attributes {tile.parameters = [], tile.schedule = #rows16, attn.form = #form} {
    %r = attn.rows %q [%i for %i] head %i ordinal %i from %i : !query
    %0 = attn.init %r : !query -> !state
    %t = attn.tokens %kv [%i] from %i to %i full %i to %i pos0 %i first_ordinal %i : !kv
    // expected-error @+1 {{expected rows and tokens that are staged: --attn-stage-operands does it}}
    %1 = attn.update %0, %r, %t see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return
  }
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  func.func @lanes(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.parameters = [], tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>} {
    %0 = attn.init %q : !query -> !state
    // expected-error @+1 {{has no form where a warp holds one row}}
    %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return
  }
}
