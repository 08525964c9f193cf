// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// A row sees all of a tile that one term of a union shows it. Each term is an interval, so its two ends tell.

!s = !tile.fragment<[query 16, key 64], f32>
!pos = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @union(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %sink: i32, %window: i32) -> !s {
    // CHECK: %[[FIRST:.*]] = arith.addi %arg2, %arg4 :
    // CHECK-NEXT: %[[C63:.*]] = arith.constant 63 :
    // CHECK-NEXT: %[[LAST:.*]] = arith.addi %[[FIRST]], %[[C63]] :
    // CHECK: tile.map %arg1 (%[[ROW:.*]]: i32) {
    // CHECK-NEXT: %[[FAR:.*]] = arith.constant 1073741824 :
    // CHECK-NEXT: %[[SIZE:.*]] = arith.minsi %arg6, %[[FAR]] :
    // CHECK-NEXT: %[[BACK:.*]] = arith.constant -1073741824 :
    // CHECK-NEXT: %[[R1:.*]] = arith.maxsi %[[ROW]], %[[BACK]] :
    // CHECK-NEXT: %[[BEGIN:.*]] = arith.subi %[[R1]], %[[SIZE]] :
    // CHECK: %[[S0:.*]] = arith.cmpi slt, %[[FIRST]], %arg5 :
    // CHECK-NEXT: %[[S1:.*]] = arith.cmpi slt, %[[LAST]], %arg5 :
    // CHECK-NEXT: %[[SINK:.*]] = arith.andi %[[S0]], %[[S1]] :
    // CHECK: %[[W0:.*]] = arith.cmpi sgt, %[[FIRST]], %[[BEGIN]] :
    // CHECK-NEXT: %[[W1:.*]] = arith.cmpi sle, %[[FIRST]], %[[ROW]] :
    // CHECK-NEXT: %[[W2:.*]] = arith.andi %[[W0]], %[[W1]] :
    // CHECK-NEXT: %[[W3:.*]] = arith.cmpi sgt, %[[LAST]], %[[BEGIN]] :
    // CHECK-NEXT: %[[W4:.*]] = arith.cmpi sle, %[[LAST]], %[[ROW]] :
    // CHECK-NEXT: %[[W5:.*]] = arith.andi %[[W3]], %[[W4]] :
    // CHECK-NEXT: %[[WINDOW:.*]] = arith.andi %[[W2]], %[[W5]] :
    // CHECK-NEXT: %[[ALL:.*]] = arith.ori %[[SINK]], %[[WINDOW]] :
    // CHECK: tile.mask %arg0 if %{{.*}} where %{{.*}}, %arg1 (%[[K:.*]]: i32, %[[Q:.*]]: i32) {
    // CHECK: %[[R2:.*]] = arith.maxsi %[[Q]], %{{.*}} :
    // CHECK-NEXT: %[[BEGIN2:.*]] = arith.subi %[[R2]], %{{.*}} :
    // CHECK: %[[M0:.*]] = arith.cmpi slt, %[[K]], %arg5 :
    // CHECK-NEXT: %[[M1:.*]] = arith.cmpi sgt, %[[K]], %[[BEGIN2]] :
    // CHECK-NEXT: %[[M2:.*]] = arith.cmpi sle, %[[K]], %[[Q]] :
    // CHECK-NEXT: %[[M3:.*]] = arith.andi %[[M1]], %[[M2]] :
    // CHECK-NEXT: arith.ori %[[M0]], %[[M3]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see sink(4) | window(8) ends %sink, %window : !pos, !s
    return %0 : !s
  }
}
