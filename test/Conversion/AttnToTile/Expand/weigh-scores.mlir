// RUN: attn-opt %s --attn-weigh-scores | FileCheck %s

// The kernel that makes significance of stored scores begins beside what finishes rows: it reads its task and finds its
// places, waits, has the scores of all of its tokens on their way, and only then looks at an LSE or writes.

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
// The wait stands where the task decides what follows, in both branches, or ptxas would put it in front of the task.
// CHECK: {{^    }}scf.if
// CHECK-NEXT: tile.wait_previous
// CHECK-NOT: tile.write
// Nobody reads scores again.
// CHECK: tile.read_adjacent {{.*}} {tile.l2 = "evict_first"}
// CHECK-NOT: arith.bitcast
// CHECK-COUNT-3: tile.read_adjacent {{.*}} {tile.l2 = "evict_first"}
// What a launch in front wrote is not read through the cache of constants.
// CHECK-COUNT-4: tile.read written
// CHECK-NOT: tile.read
// A score is no conversion, but the end of a float less what it began with.
// CHECK: %[[BITS:.*]] = arith.ori %{{.*}}, %c1262485504_i32
// CHECK: %[[SUM:.*]] = arith.bitcast %[[BITS]] : i32 to f32
// CHECK: arith.subf %[[SUM]], %cst
// The outermost scores are looked for once for a token.
// CHECK: %[[INSIDE:.*]] = arith.cmpf olt, %{{.*}}, %{{.*}} : f32
// CHECK-NEXT: scf.if %[[INSIDE]] -> (f32)
// CHECK: tile.write
// All lanes have read a line when the one that has its last token, and whose warp has all of it, discards it. A line with
// the last token of the list is left alone: lanes behind that one have read it.
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
