// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=WALK
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --tile-fold-constants | FileCheck %s

// Complete rows are divided by a scale that is made of their largest output: in the branch that writes the output, and
// in the kernel that merges. If warps have columns of the same rows, they exchange maxima. States are not divided.

!query = tensor<?x8x64xbf16>
!out = tensor<?x8x64xf8E4M3FN>
!scales = tensor<?x8xf32>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>
#decode = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

gpu.module @kernels {
  // WALK-LABEL: func.func @attend(
  // WALK: attn.write %{{.*}} output_scales : tensor<?x8x64xf8E4M3FN> of tensor<?x8x64xbf16>
  // CHECK-LABEL: func.func @attend(
  // CHECK: scf.if
  // CHECK-NOT: math.absf
  // CHECK: } else {
  // CHECK: %[[SIZES:.*]] = tile.map
  // CHECK: math.absf
  // CHECK: %[[LARGEST:.*]] = tile.reduce max %[[SIZES]]
  // CHECK-NOT: tile.reduce_warps
  // CHECK: %[[SCALES:.*]] = tile.map %[[LARGEST]]
  // CHECK: arith.maxnumf
  // CHECK: arith.divf
  // CHECK: %[[INVERSES:.*]] = tile.map %[[SCALES]]
  // CHECK: %[[O:.*]] = tile.map %{{.*}}, %[[INVERSES]]
  // CHECK: tile.store %[[O]] to
  // CHECK: -> <f8E4M3FN>
  // CHECK: tile.store %[[SCALES]] to
  // CHECK: -> <f32>
  func.func @attend(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}) -> (!out, !scales) attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o, %s = attn.finish %1 : !state -> !out output_scales !scales
    return %o, %s : !out, !scales
  }

  // CHECK-LABEL: func.func @decode(
  // CHECK: tile.merge_warps {{.*}} scratch %[[SCRATCH:.*]] :
  // CHECK: %[[LARGEST:.*]] = tile.reduce max
  // CHECK: tile.reduce_warps max %[[LARGEST]] warps 4 warp %{{.*}} scratch %[[SCRATCH]]
  func.func @decode(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}) -> (!out, !scales) attributes {tile.schedule = #decode} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o, %s = attn.finish %1 : !state -> !out output_scales !scales
    return %o, %s : !out, !scales
  }

  // WALK-LABEL: func.func @merge(
  // WALK: attn.write %{{.*}} to %{{.*}} output_scales : tensor<?x8x64xf8E4M3FN>
  // CHECK-LABEL: func.func @merge(
  // CHECK-COUNT-4: math.absf
  // CHECK: tile.reduce_lanes max
  // CHECK: %[[SCALE:.*]] = arith.divf
  // CHECK: tile.write_adjacent {{.*}} : f32, f32, f32, f32 -> <f8E4M3FN>
  // CHECK: scf.if
  // CHECK: tile.write %[[SCALE]] to
  func.func @merge(%q: !query {attn.name = "q"}) -> (!out, !scales) attributes {tile.merge_schedule = #merge} {
    %s0 = attn.parts %q kv_heads 2 : !query -> !state
    %o, %s = attn.finish %s0 : !state -> !out output_scales !scales
    return %o, %s : !out, !scales
  }
}
