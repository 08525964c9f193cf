// RUN: attn-opt %s --attn-make-kernels | FileCheck %s

// A kernel is the function itself with one of its schedules. The merge kernel finishes the states that the other
// kernels have stored.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>

func.func @f(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#rows16, #rows128], tile.merge_schedule = #merge} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK-NOT: func.func @f(
// CHECK: gpu.module @f_kernels
// CHECK: func.func @f_rows16(%[[Q:.*]]: tensor<?x8x64xbf16> {attn.name = "q"}, %{{.*}} {attn.name = "kv"})
// CHECK-SAME: tile.schedule = #tile.schedule<mma, rows = 16,
// CHECK: attn.init
// CHECK: attn.update
// CHECK: attn.finish
// CHECK: func.func @f_rows128(
// CHECK-SAME: tile.schedule = #tile.schedule<mma, rows = 128,
// CHECK: func.func @f_merge(%[[Q:[a-z0-9]*]]:
// CHECK-NOT: tile.schedule
// CHECK: %[[PARTS:.*]] = attn.parts %[[Q]] kv_heads 2
// CHECK-NEXT: attn.finish %[[PARTS]]
// CHECK-NEXT: return

// With head classes, the plan numbers heads by their ordinals.

func.func @g(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %c: tensor<2xi32> {attn.name = "classes"}) -> !query
    attributes {tile.schedules = [#rows16], tile.merge_schedule = #merge} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal heads %c {a: see all, b: see recent(7)} scale 1.0 : !query, !kv, tensor<2xi32> -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK: func.func @g_merge(
// CHECK: attn.parts %{{.*}} kv_heads 2 by_ordinal
