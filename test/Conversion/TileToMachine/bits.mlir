// RUN: attn-opt %s --tile-to-machine | FileCheck %s

// The set bits of a mask are counted, and the lowest one is found, by one operation each; without bits it is the one
// after the last.

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
