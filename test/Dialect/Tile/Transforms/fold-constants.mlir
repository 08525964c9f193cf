// RUN: attn-opt %s --tile-fold-constants | FileCheck %s

// Each constant exists once, at the kernel's start; known values are computed; unused operations are erased,
// with the operations that only they used.

gpu.module @kernels {
  func.func @f(%n: i32, %c: i1) -> i32 {
    %r = scf.if %c -> i32 {
      %a = arith.constant 7 : i32
      %x = arith.addi %n, %a : i32
      %unused = arith.muli %x, %x : i32
      %more = arith.muli %unused, %x : i32
      scf.yield %x : i32
    } else {
      %a = arith.constant 7 : i32
      %b = arith.constant 6 : i32
      %ab = arith.muli %a, %b : i32
      %y = arith.subi %ab, %n : i32
      scf.yield %y : i32
    }
    return %r : i32
  }
}

// CHECK-LABEL: func.func @f(
// CHECK-DAG: %c7_i32 = arith.constant 7
// CHECK-DAG: %c42_i32 = arith.constant 42
// CHECK: scf.if
// CHECK-NEXT: arith.addi %arg0, %c7_i32
// CHECK-NEXT: scf.yield
// CHECK-NEXT: } else {
// CHECK-NEXT: arith.subi %c42_i32, %arg0
// CHECK-NEXT: scf.yield
