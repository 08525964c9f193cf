// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// A row sees all of a tile if one term of a union shows it all. Each term is an interval, given by its two ends.

!s = !tile.fragment<[query 16, key 64], f32>
!pos = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @union(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %sink: i32, %window: i32) -> !s {
    // CHECK: %[[FIRST:.*]] = arith.addi %arg2, %arg4 :
    // CHECK-NEXT: %[[C63:.*]] = arith.constant 63 :
    // CHECK-NEXT: %[[LAST:.*]] = arith.addi %[[FIRST]], %[[C63]] :
    // CHECK: tile.map %arg1 (%[[ROW:.*]]: i32) {
    // CHECK: %[[SINK:.*]] = arith.cmpi slt, %[[LAST]], %arg5 :
    // CHECK: %[[END:.*]] = arith.addi %[[ROW]], %{{.*}} overflow<nsw> :
    // CHECK: %[[R1:.*]] = arith.maxsi %[[END]], %c-1073741824_i32 :
    // CHECK: %[[SIZE:.*]] = arith.minsi %arg6, %c1073741824_i32 :
    // CHECK-NEXT: %[[BEGIN:.*]] = arith.subi %[[R1]], %[[SIZE]] :
    // CHECK-NEXT: %[[W0:.*]] = arith.cmpi sle, %[[BEGIN]], %[[FIRST]] :
    // CHECK-NEXT: %[[W1:.*]] = arith.cmpi slt, %[[LAST]], %[[END]] :
    // CHECK-NEXT: %[[WINDOW:.*]] = arith.andi %[[W0]], %[[W1]] :
    // CHECK-NEXT: %[[ALL:.*]] = arith.ori %[[SINK]], %[[WINDOW]] :
    // CHECK: tile.mask %arg0 if %{{.*}} where %{{.*}}, %arg1 (%[[K:.*]]: i32, %[[Q:.*]]: i32) {
    // CHECK: %[[M0:.*]] = arith.cmpi slt, %[[K]], %arg5 :
    // CHECK: %[[END2:.*]] = arith.addi %[[Q]], %{{.*}} overflow<nsw> :
    // CHECK: %[[R2:.*]] = arith.maxsi %[[END2]], %{{.*}} :
    // CHECK: %[[BEGIN2:.*]] = arith.subi %[[R2]], %{{.*}} :
    // CHECK: %[[M1:.*]] = arith.cmpi slt, %[[K]], %[[END2]] :
    // CHECK-NEXT: %[[M2:.*]] = arith.cmpi sge, %[[K]], %[[BEGIN2]] :
    // CHECK-NEXT: %[[M3:.*]] = arith.andi %[[M2]], %[[M1]] :
    // CHECK-NEXT: arith.ori %[[M0]], %[[M3]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see sink(4) | window(8) ends %sink, %window : !pos, !s
    return %0 : !s
  }
}
