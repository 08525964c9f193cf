// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// Where the operation has `if`, ends are measured from the lane's first column, and no upper end is behind the last token.

!s = !tile.fragment<[query 16, key 64], f32>
!pos = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @union(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %sink: i32, %window: i32, %if: i1) -> !s {
    // CHECK: %[[COLUMN:.*]], %[[OFFSETS:.*]] = tile.lane_coordinates : <[key 64], i32>
    // CHECK-NEXT: %[[TOKEN:.*]] = arith.addi %arg2, %[[COLUMN]] :
    // CHECK-NEXT: %[[ORIGIN:.*]] = arith.addi %arg4, %[[TOKEN]] :
    // CHECK-NEXT: %[[EXISTS:.*]] = arith.subi %arg3, %[[TOKEN]] :
    // CHECK-NEXT: %[[ONE:.*]] = arith.constant 1 :
    // CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[EXISTS]], %[[ONE]] :
    // CHECK-NEXT: %[[ROW:.*]] = tile.map %arg1 (%[[P:.*]]: i32) {
    // CHECK-NEXT: %[[P1:.*]] = arith.subi %[[P]], %[[ORIGIN]] :
    // CHECK-NEXT: %[[P2:.*]] = arith.minsi %[[P1]], %[[LAST]] :
    // CHECK-NEXT: tile.yield %[[P2]] :
    // CHECK: %[[SINK0:.*]] = arith.subi %arg5, %[[ORIGIN]] :
    // CHECK-NEXT: %[[SINK:.*]] = arith.minsi %[[SINK0]], %[[EXISTS]] :
    // CHECK-NEXT: %[[FAR:.*]] = arith.constant 1073741824 :
    // CHECK-NEXT: %[[SIZE:.*]] = arith.minsi %arg6, %[[FAR]] :
    // CHECK-NEXT: %[[BEGIN:.*]] = tile.map %arg1 (%[[R:.*]]: i32) {
    // CHECK-NEXT: %[[R1:.*]] = arith.subi %[[R]], %[[ORIGIN]] :
    // CHECK-NEXT: %[[BACK:.*]] = arith.constant -1073741824 :
    // CHECK-NEXT: %[[R2:.*]] = arith.maxsi %[[R1]], %[[BACK]] :
    // CHECK-NEXT: %[[R3:.*]] = arith.subi %[[R2]], %[[SIZE]] :
    // CHECK-NEXT: tile.yield %[[R3]] :
    // CHECK: %[[M:.*]] = tile.mask %arg0 if %arg7 where %[[OFFSETS]], %[[ROW]], %[[BEGIN]] (%[[C:.*]]: i32, %[[L:.*]]: i32, %[[B:.*]]: i32) {
    // CHECK-NEXT: %[[IN_SINK:.*]] = arith.cmpi slt, %[[C]], %[[SINK]] :
    // CHECK-NEXT: %[[BEHIND:.*]] = arith.cmpi sgt, %[[C]], %[[B]] :
    // CHECK-NEXT: %[[BEFORE:.*]] = arith.cmpi sle, %[[C]], %[[L]] :
    // CHECK-NEXT: %[[IN:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]] :
    // CHECK-NEXT: %[[SEES:.*]] = arith.ori %[[IN_SINK]], %[[IN]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    // CHECK: return %[[M]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see sink(4) | window(8) ends %sink, %window if %if : !pos, !s
    return %0 : !s
  }
}
