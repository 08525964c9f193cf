// RUN: attn-opt %s --target=sm_90a --emit=tile | FileCheck %s

// Blocks that add to the same rows wait for each other. The heads of a group of five are parts of tiles, one after the other
// at the same rows, and progress is counted by part.

!q = tensor<?x10x128xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 128, key = bf16, value = bf16>
func.func @five(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward, attn.ordered} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !q, !kv -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @five_tokens128_kv(
// CHECK: %[[TASK:.*]]:10 = tile.record %[[TASKS:[^ ]*]][
// Warp 2 posts at every second tile that the tile before has been added: 2^30, less five numbers for each row from the
// tile's first on, less a number for each part that is not done.
// CHECK: %[[DONE:.*]] = arith.addi %[[PART:.*]], %c1073741820_i32
// CHECK-NEXT: %[[FROM:.*]] = arith.muli %[[ROW:.*]], %c5_i32
// CHECK-NEXT: %[[HERE:.*]] = arith.subi %[[DONE]], %[[FROM]]
// CHECK-NEXT: %[[BEFORE:.*]] = arith.subi %[[HERE]], %c1_i32
// CHECK-NEXT: arith.divui %[[ROW]], %c64_i32
// CHECK-NEXT: arith.muli
// CHECK-NEXT: arith.addi %{{.*}}, %[[PART]]
// CHECK-NEXT: arith.remui {{.*}}, %c2_i32
// CHECK: scf.if
// CHECK-NEXT: tile.named_barrier_arrive %c5_i32 threads 64
// CHECK-NEXT: tile.named_barrier_sync %c4_i32 threads 64
// CHECK: tile.semaphore_post %[[BEFORE]] to %[[SEMAPHORES:[^ ]*]][
// CHECK: tile.semaphore_post %c1073741824_i32 to %[[SEMAPHORES]][
// Warp 3 stores. It waits until the other task has added the same part of its tile that contains the first row of this one.
// CHECK: %[[OTHER:.*]] = arith.maxsi %[[TASK]]#9, %c0_i32
// CHECK: %[[THEIRS:.*]]:10 = tile.record %[[TASKS]][%[[OTHER]]]
// CHECK: %[[BEGIN:.*]] = arith.minsi %[[THEIRS]]#5, %[[THEIRS]]#6
// CHECK: tile.wait_tma_stores complete
// CHECK: arith.subi %{{.*}}, %[[BEGIN]]
// CHECK-NEXT: %[[TILE:.*]] = arith.divui {{.*}}, %c64_i32
// CHECK-NEXT: %[[LINES:.*]] = arith.muli %[[TILE]], %c64_i32
// CHECK-NEXT: arith.addi %[[BEGIN]], %[[LINES]]
// CHECK: tile.semaphore_wait %[[SEMAPHORES]][
// CHECK-NEXT: tile.overlay
// CHECK: tile.tma_store {{.*}} adds
