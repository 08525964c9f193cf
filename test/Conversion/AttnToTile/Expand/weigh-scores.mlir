// RUN: attn-opt %s --attn-weigh-scores | FileCheck %s

// The kernel that makes significance of stored scores begins beside the launch that finishes rows. It reads its task
// and computes its slots, waits, loads the scores of all its tokens, and only then reads an LSE or writes.

!q = tensor<?x8x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  func.func @weigh(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!q, tensor<?x8xf32>) attributes {attn.weighs_scores = #attn.together<max>} {
    %0 = attn.init %q : !q -> !state
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !state
    %o, %lse = attn.finish %1 : !state -> !q, tensor<?x8xf32>
    return %o, %lse : !q, tensor<?x8xf32>
  }
}

// CHECK-LABEL: func.func @weigh(
// CHECK-SAME: tile.launch = {grid = "plan.score_tasks", if_filled, overlaps, role = "significance"}
// CHECK: tile.record
// CHECK-NOT: tile.read
// The wait stands where the task decides what follows, in both branches; otherwise ptxas would move it before the
// task.
// CHECK: {{^    }}scf.if
// CHECK-NEXT: tile.wait_previous
// CHECK-NOT: tile.write
// Scores are not read again.
// CHECK: tile.read_adjacent {{.*}} {tile.l2 = "evict_first"}
// CHECK-NOT: arith.bitcast
// CHECK-COUNT-3: tile.read_adjacent {{.*}} {tile.l2 = "evict_first"}
// Results of an earlier launch are not read through the constant cache.
// CHECK-COUNT-4: tile.read written
// CHECK-NOT: tile.read
// A score needs no conversion: it is a float with the stored low half, minus a constant.
// CHECK: %[[BITS:.*]] = arith.ori %{{.*}}, %c1262485504_i32
// CHECK: %[[SUM:.*]] = arith.bitcast %[[BITS]] : i32 to f32
// CHECK: arith.subf %[[SUM]], %cst
// The outermost scores are tested once for a token.
// CHECK: %[[INSIDE:.*]] = arith.cmpf olt, %{{.*}}, %{{.*}} : f32
// CHECK-NEXT: scf.if %[[INSIDE]] -> (f32)
// CHECK: tile.write
// The lane that has a line's last token, and whose warp has all of the line, discards it when all lanes have read it.
// A line with the last token of the list stays: lanes past that token have read it.
// CHECK: tile.sync warp
// CHECK: %[[BIT:.*]] = arith.andi %{{.*}}, %c31_i64
// CHECK: %[[ENDS:.*]] = arith.cmpi eq, %[[BIT]], %c0_i64
// CHECK: %[[NEXT:.*]] = arith.addi %{{.*}}, %c1_i32
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[NEXT]],
// CHECK: arith.andi %[[ENDS]], %[[SOME]]
// CHECK: arith.cmpi sgt, %{{.*}}, %c14_i32
// CHECK: tile.write %c-1_i32 {{.*}} {tile.l2 = "discard"}
// CHECK-NOT: tile.read
// CHECK-COUNT-3: scf.if %{{.*}} -> (f32)
// CHECK: tile.write %c-1_i32
// CHECK: } else {
// CHECK-NEXT: tile.wait_previous
// CHECK-NOT: tile.read
// CHECK-COUNT-4: tile.write
// CHECK: return
