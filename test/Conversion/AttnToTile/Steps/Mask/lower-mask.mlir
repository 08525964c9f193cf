// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// If the operation has `if`, ends are measured from the lane's first column, and no upper end is past the last token.

!s = !tile.fragment<[query 16, key 64], f32>
!pos = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @union(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %sink: i32, %window: i32, %if: i1) -> !s {
    // CHECK: %[[COLUMN:.*]], %[[OFFSETS:.*]] = tile.lane_coordinates : <[key 64], i32>
    // CHECK-NEXT: %[[TOKEN:.*]] = arith.addi %arg2, %[[COLUMN]] :
    // CHECK-NEXT: %[[ORIGIN:.*]] = arith.addi %arg4, %[[TOKEN]] :
    // CHECK-NEXT: %[[EXISTS:.*]] = arith.subi %arg3, %[[TOKEN]] :
    // CHECK-NEXT: %[[SINK0:.*]] = arith.subi %arg5, %[[ORIGIN]] :
    // CHECK-NEXT: %[[SINK:.*]] = arith.minsi %[[SINK0]], %[[EXISTS]] :
    // CHECK-NEXT: %[[BEGIN:.*]] = tile.map %arg1 (%[[R:.*]]: i32) {
    // CHECK-NEXT: %[[R1:.*]] = arith.subi %[[R]], %[[ORIGIN]] :
    // CHECK: %[[R2:.*]] = arith.addi %[[R1]], %{{.*}} overflow<nsw> :
    // CHECK: %[[R3:.*]] = arith.maxsi %[[R2]], %c-1073741824_i32 :
    // CHECK: %[[SIZE:.*]] = arith.minsi %arg6, %c1073741824_i32 :
    // CHECK-NEXT: %[[R4:.*]] = arith.subi %[[R3]], %[[SIZE]] :
    // CHECK-NEXT: tile.yield %[[R4]] :
    // CHECK: %[[END:.*]] = tile.map %arg1 (%[[P:.*]]: i32) {
    // CHECK-NEXT: %[[P1:.*]] = arith.subi %[[P]], %[[ORIGIN]] :
    // CHECK: %[[P2:.*]] = arith.addi %[[P1]], %{{.*}} overflow<nsw> :
    // CHECK: %[[P3:.*]] = arith.minsi %[[P2]], %[[EXISTS]] :
    // CHECK-NEXT: tile.yield %[[P3]] :
    // CHECK: %[[M:.*]] = tile.mask %arg0 if %arg7 where %[[OFFSETS]], %[[BEGIN]], %[[END]] (%[[C:.*]]: i32, %[[B:.*]]: i32, %[[E:.*]]: i32) {
    // CHECK-NEXT: %[[IN_SINK:.*]] = arith.cmpi slt, %[[C]], %[[SINK]] :
    // CHECK-NEXT: %[[BEFORE:.*]] = arith.cmpi slt, %[[C]], %[[E]] :
    // CHECK-NEXT: %[[BEHIND:.*]] = arith.cmpi sge, %[[C]], %[[B]] :
    // CHECK-NEXT: %[[IN:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]] :
    // CHECK-NEXT: %[[SEES:.*]] = arith.ori %[[IN_SINK]], %[[IN]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    // CHECK: return %[[M]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see sink(4) | window(8) ends %sink, %window if %if : !pos, !s
    return %0 : !s
  }
}
