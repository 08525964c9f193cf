// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=WALK
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --tile-fold-constants | FileCheck %s

// Outputs are multiplied by the sigmoid of the gate where rows are complete, and states are not: in the branch that
// writes the output, and in the kernel that merges.

!query = tensor<?x8x64xbf16>
!heads = tensor<?x8xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>

gpu.module @kernels {
  // WALK-LABEL: func.func @attend(
  // WALK: attn.finish %{{.*}} of %{{.*}} : !attn.state<heads = 8, value_dim = 64> of tensor<?x8x64xbf16> -> tensor<?x8x64xbf16>
  // WALK: attn.write %{{.*}} gate %{{.*}} : tensor<?x8x64xbf16> of tensor<?x8x64xbf16> gate tensor<?x8x64xbf16>
  // CHECK-LABEL: func.func @attend(
  // CHECK: scf.if
  // CHECK-NOT: tile.load_features
  // CHECK: tile.store {{.*}} stride 64
  // CHECK: } else {
  // CHECK: %[[G:.*]] = tile.load_features %{{[^ ]*}} (
  // CHECK: arith.minsi
  // CHECK: -> <[query 16, feature 64], f32>
  // CHECK: %[[O:.*]] = tile.map %{{.*}}, %[[G]]
  // CHECK: math.exp2
  // CHECK: tile.reciprocal
  // CHECK: tile.store %[[O]] to
  func.func @attend(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %g: !query {attn.name = "gate"}) -> !query attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 gate %g : !state gate !query -> !query
    return %o : !query
  }

  // A number for each head is read once for each row.
  // CHECK-LABEL: func.func @heads(
  // CHECK: } else {
  // CHECK: %[[H:.*]] = tile.load_vector
  // CHECK: -> <[query 16], bf16>
  // CHECK: %[[F:.*]] = tile.map %[[H]]
  // CHECK: arith.extf
  // CHECK: math.exp2
  // CHECK: %[[O:.*]] = tile.map %{{.*}}, %[[F]]
  // CHECK-NOT: math.exp2
  // CHECK: tile.store %[[O]] to
  func.func @heads(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %g: !heads {attn.name = "gate"}) -> !query attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 gate %g : !state gate !heads -> !query
    return %o : !query
  }

  // WALK-LABEL: func.func @merge(
  // WALK: attn.finish %{{.*}} : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  // WALK: attn.write %{{.*}} to %{{.*}} gate %arg1 : tensor<?x8x64xbf16> gate tensor<?x8x64xbf16>
  // CHECK-LABEL: func.func @merge(
  // CHECK: tile.read_adjacent %{{.*}} -> bf16, bf16, bf16, bf16
  // CHECK: math.exp2
  // CHECK: tile.write_adjacent
  func.func @merge(%q: !query {attn.name = "q"}, %g: !query {attn.name = "gate"}) -> !query attributes {tile.merge_schedule = #merge} {
    %s = attn.parts %q kv_heads 2 : !query -> !state
    %o = attn.finish %s gate %g : !state gate !query -> !query
    return %o : !query
  }
}
