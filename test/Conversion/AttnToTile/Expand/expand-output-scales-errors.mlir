// RUN: attn-opt %s --split-input-file --verify-diagnostics --attn-walk-plan --attn-stage-operands --attn-expand-online

!query = tensor<?x8x64xbf16>
!out = tensor<?x8x64xf8E4M3FN>
!scales = tensor<?x8xf32>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  // expected-error @below {{expected rows that no warps share beside output_scales, got 2 warps or warpgroups for each}}
  func.func @merge(%q: !query {attn.name = "q"}) -> (!out, !scales) attributes {tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16, slices = 2>} {
    %s0 = attn.parts %q kv_heads 2 : !query -> !state
    %o, %s = attn.finish %s0 : !state -> !out output_scales !scales
    return %o, %s : !out, !scales
  }
}
