// RUN: attn-opt %s --tile-to-machine | FileCheck %s

// A signal is a store with release semantics at system scope, and a wait loads with acquire semantics. The clock is read only
// where the first load came too early.

gpu.module @m {
  func.func @signals(%memory: !tile.buffer<i32>, %out: !tile.buffer<i32>, %value: i32, %limit: i64)
      attributes {tile.threads = 32 : i32, tile.parameters = []} {
    %at = arith.constant 5 : i64
    tile.signal %value to %memory[%at] : <i32>
    %reached = tile.wait_signal %memory[%at] reaches %value within %limit : <i32>
    %word = arith.extui %reached : i1 to i32
    tile.write %word to %out[%at] : i32 -> <i32>
    return
  }
}

// CHECK-LABEL: func.func @signals
// CHECK: llvm.store %[[VALUE:.*]], %{{.*}} atomic release {alignment = 4 : i64}
// CHECK: %[[LOOP:.*]]:2 = scf.while (%[[BEGIN:.*]] = %{{.*}}, %[[PASSED:.*]] = %{{.*}})
// CHECK-NOT: globaltimer
// CHECK: llvm.load %{{.*}} atomic acquire {alignment = 4 : i64}
// CHECK: %[[AHEAD:.*]] = arith.subi %{{.*}}, %[[VALUE]]
// CHECK: arith.cmpi sge, %[[AHEAD]]
// CHECK: arith.cmpi slt, %[[PASSED]]
// CHECK: scf.condition
// CHECK: llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.globaltimer"
// CHECK: arith.extui %[[LOOP]]#0
