// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=WALK
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --tile-fold-constants | FileCheck %s

// Complete rows are divided by the scale, after the gate, and stored in e4m3: in the branch that writes the output,
// and in the kernel that merges. States are not divided.

!query = tensor<?x8x64xbf16>
!heads = tensor<?x8xbf16>
!out = tensor<?x8x64xf8E4M3FN>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>

gpu.module @kernels {
  // WALK-LABEL: func.func @attend(
  // WALK: attn.finish %{{.*}} of %{{.*}} : !attn.state<heads = 8, value_dim = 64> of tensor<?x8x64xbf16> -> tensor<?x8x64xf8E4M3FN>
  // WALK: attn.write %{{.*}} gate %{{.*}} output_scale %{{.*}} : tensor<?x8x64xf8E4M3FN> of tensor<?x8x64xbf16> gate tensor<?x8xbf16> output_scale tensor<1xf32>
  // CHECK-LABEL: func.func @attend(
  // CHECK: scf.if
  // CHECK-NOT: arith.divf
  // CHECK: tile.store {{.*}} stride 64
  // CHECK: } else {
  // CHECK: math.exp2
  // CHECK: %[[GATED:.*]] = tile.map
  // CHECK: %[[SCALE:.*]] = tile.read
  // CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %[[SCALE]]
  // CHECK: %[[O:.*]] = tile.map %[[GATED]]
  // CHECK: arith.mulf %{{.*}}, %[[INVERSE]]
  // CHECK: tile.store %[[O]] to
  // CHECK: -> <f8E4M3FN>
  func.func @attend(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %g: !heads {attn.name = "gate"}, %s: tensor<1xf32> {attn.name = "output_scale"}) -> !out attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 gate %g output_scale %s : !state gate !heads output_scale tensor<1xf32> -> !out
    return %o : !out
  }

  // WALK-LABEL: func.func @merge(
  // WALK: attn.finish %{{.*}} : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xf8E4M3FN>
  // WALK: attn.write %{{.*}} to %{{.*}} output_scale %arg1 : tensor<?x8x64xf8E4M3FN> output_scale tensor<1xf32>
  // CHECK-LABEL: func.func @merge(
  // CHECK: %[[INVERSE:.*]] = arith.divf
  // CHECK: arith.mulf %{{.*}}, %[[INVERSE]]
  // CHECK: tile.write_adjacent {{.*}} : f32, f32, f32, f32 -> <f8E4M3FN>
  func.func @merge(%q: !query {attn.name = "q"}, %s: tensor<1xf32> {attn.name = "output_scale"}) -> !out attributes {tile.merge_schedule = #merge} {
    %s0 = attn.parts %q kv_heads 2 : !query -> !state
    %o = attn.finish %s0 output_scale %s : !state output_scale tensor<1xf32> -> !out
    return %o : !out
  }
}
