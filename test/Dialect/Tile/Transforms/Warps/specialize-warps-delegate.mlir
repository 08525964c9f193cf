// RUN: attn-opt %s --allow-unregistered-dialect --tile-specialize-warps | FileCheck %s

// A producer warp alone runs what the computing warps delegate, in loops like theirs.

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>

gpu.module @kernels {
  // CHECK-LABEL: func.func @delegates
  // CHECK: tile.set_registers 40
  // CHECK: scf.if
  // CHECK:   scf.for
  // CHECK-NEXT: tile.produce
  // CHECK: scf.if
  // CHECK:   scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} : i32 {
  // CHECK-NEXT: %[[TWICE:.*]] = arith.addi %[[I]], %[[I]]
  // CHECK-NEXT: tile.named_barrier_sync %[[TWICE]] threads 160
  // CHECK-NEXT: "test.store"(%[[TWICE]])
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.wait_tma_stores
  // CHECK: } else {
  // CHECK: tile.set_registers increase 232
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: "test.use"
  // CHECK-NEXT: tile.named_barrier_arrive
  // CHECK-NOT: "test.store"
  // CHECK-NOT: tile.wait_tma_stores
  // CHECK: return
  func.func @delegates(%map: !tile.tensor_map<4>, %n: i32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !k>
    scf.for %i = %zero to %n step %one : i32 {
      %k = tile.produce %ring warp 0 (%t: !k) {
        tile.tma_load %map from %i head %n lines 32 into %t : !tile.tensor_map<4> -> !k
      } : !tile.ring<2, !k> -> !k
      "test.use"(%k) : (!k) -> ()
      tile.named_barrier_arrive %one threads 160
      %twice = arith.addi %i, %i : i32
      tile.delegate warp 3 () {
        tile.named_barrier_sync %twice threads 160
        "test.store"(%twice) : (i32) -> ()
      }
    }
    tile.delegate warp 3 () {
      tile.wait_tma_stores
    }
    return
  }
}
