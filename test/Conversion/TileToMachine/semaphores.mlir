// RUN: attn-opt %s --tile-to-machine | FileCheck %s

// One lane posts with release semantics in the device, and one waits without a fence.

gpu.module @m {
  func.func @semaphores(%memory: !tile.buffer<i32>, %value: i32)
      attributes {tile.threads = 32 : i32, tile.parameters = []} {
    %at = arith.constant 5 : i64
    tile.semaphore_post %value to %memory[%at] : <i32>
    tile.semaphore_wait %memory[%at] reaches %value : <i32>
    return
  }
}

// CHECK-LABEL: func.func @semaphores
// CHECK: scf.if
// CHECK: llvm.store %[[VALUE:.*]], %{{.*}} atomic syncscope("device") release {alignment = 4 : i64}
// CHECK: scf.if
// CHECK: scf.while
// CHECK: %[[SEEN:.*]] = llvm.load %{{.*}} atomic syncscope("device") monotonic {alignment = 4 : i64}
// CHECK: %[[EARLY:.*]] = arith.cmpi slt, %[[SEEN]], %[[VALUE]]
// CHECK: scf.condition(%[[EARLY]])
