// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// Terms that are the same for all rows come first, and every term keeps its own ends.

!s = !tile.fragment<[key 16, query 32], f32>
!pos = !tile.fragment<[query 32], i32>
gpu.module @kernels {
  func.func @union(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %w: i32, %l: i32, %r: i32, %n: i32, %if: i1) -> !s {
    // CHECK: arith.subi %arg8, %{{.*}} :
    // CHECK-NEXT: %[[SINK:.*]] = arith.minsi %{{.*}} :
    // CHECK-NEXT: tile.mask %arg0 if %arg9 where {{.*}} (%[[C:.*]]: i32, %[[B0:.*]]: i32, %[[E0:.*]]: i32, %[[B1:.*]]: i32, %[[E1:.*]]: i32) {
    // CHECK-NEXT: %[[A:.*]] = arith.cmpi slt, %[[C]], %[[SINK]] :
    // CHECK-NEXT: %[[BEFORE0:.*]] = arith.cmpi slt, %[[C]], %[[E0]] :
    // CHECK-NEXT: %[[BEHIND0:.*]] = arith.cmpi sge, %[[C]], %[[B0]] :
    // CHECK-NEXT: %[[IN0:.*]] = arith.andi %[[BEHIND0]], %[[BEFORE0]] :
    // CHECK-NEXT: %[[TWO:.*]] = arith.ori %[[A]], %[[IN0]] :
    // CHECK-NEXT: %[[BEFORE1:.*]] = arith.cmpi slt, %[[C]], %[[E1]] :
    // CHECK-NEXT: %[[BEHIND1:.*]] = arith.cmpi sge, %[[C]], %[[B1]] :
    // CHECK-NEXT: %[[IN1:.*]] = arith.andi %[[BEHIND1]], %[[BEFORE1]] :
    // CHECK-NEXT: %[[SEES:.*]] = arith.ori %[[TWO]], %[[IN1]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see window(8) | window(3, 2) | sink(4) ends %w, %l, %r, %n if %if : !pos, !s
    return %0 : !s
  }
}
