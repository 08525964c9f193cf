// RUN: attn-opt %s --tile-to-machine | FileCheck %s

// What is set of a mask is counted and found by one operation each; of no bits the lowest one is behind the last.

// CHECK-LABEL: func.func @bits
// CHECK: llvm.intr.ctpop(%{{.*}}) : (i32) -> i32
// CHECK: "llvm.intr.cttz"(%{{.*}}) <{is_zero_poison = false}> : (i32) -> i32
gpu.module @m {
  func.func @bits(%mask: i32) -> (i32, i32) {
    %count = math.ctpop %mask : i32
    %lowest = math.cttz %mask : i32
    return %count, %lowest : i32, i32
  }
}
