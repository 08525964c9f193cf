// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(attn-sum-parts))' | FileCheck %s

// The partial gradients of keys and values, added up for sixteen tokens: a thread has four features of a token at a
// time. With heads of 96 it has three such pieces, the last one only if its token exists.

!q = tensor<?x4x96xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 96, key = bf16, value = bf16>
!dense = !attn.kv<dense, heads = 2, dim = 96, key = bf16, value = bf16>
!lse = tensor<?x4xf32>
!state = !attn.state<heads = 4, value_dim = 96>

gpu.module @kernels {
  func.func @f_sum(%q: !q {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !dense {attn.name = "b"}) -> (!q, !lse)
      attributes {attn.sums_parts} {
    %0 = attn.init %q : !q -> !state
    %1 = attn.update %0, %q, %a see all scale 0.125 : !q, !kv -> !state
    %2 = attn.update %1, %q, %b see causal scale 0.125 : !q, !dense -> !state
    %o, %lse = attn.finish %2 : !state -> !q, !lse
    return %o, %lse : !q, !lse
  }
}

// CHECK-LABEL: func.func @f_sum(
// CHECK-SAME: tile.launch = {grid = "plan.token_sums", if_filled, role = "gradient"}
// CHECK: %[[SUM:.*]]:8 = tile.record
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[SUM]]#0, %c0_i32
// CHECK: scf.if %[[FIRST]]
// CHECK: %[[LINES:.*]] = arith.subi %[[SUM]]#3, %[[SUM]]#2
// Keys: the parts in their order; all loads of a part are in flight before anything is added.
// CHECK: %[[TOTAL:.*]]:12 = scf.for %[[PART:.*]] = %c0_i32{{.*}} to %[[SUM]]#6
// CHECK: %[[AHEAD:.*]] = arith.muli %[[PART]], %[[SUM]]#7
// CHECK-NEXT: arith.addi %[[SUM]]#5, %[[AHEAD]]
// CHECK-COUNT-3: tile.read_adjacent {{.*}} -> f32, f32, f32, f32
// CHECK-NOT: tile.read_adjacent
// CHECK-COUNT-12: arith.addf
// CHECK: scf.yield
// The region's store gives a token's slot, and lines without a token are not written.
// CHECK: %[[EXISTS:.*]] = arith.cmpi slt, %{{.*}}, %[[LINES]]
// CHECK: scf.if %[[EXISTS]]
// CHECK: tile.read %{{.*}} : <i32> -> i32
// CHECK: tile.write_adjacent %[[TOTAL]]#0, %[[TOTAL]]#1, %[[TOTAL]]#2, %[[TOTAL]]#3 to
// CHECK-SAME: f32, f32, f32, f32 -> <bf16>
// CHECK-COUNT-2: tile.write_adjacent
// Values, in the same way.
// CHECK: scf.for
// CHECK-COUNT-3: tile.read_adjacent
// CHECK-COUNT-3: tile.write_adjacent
// The other region's store is dense.
// CHECK: %[[SECOND:.*]] = arith.cmpi eq, %[[SUM]]#0, %c1_i32
// CHECK: scf.if %[[SECOND]]
// CHECK-COUNT-6: tile.write_adjacent
// CHECK-NOT: tile.write_adjacent
