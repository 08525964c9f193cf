// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// A chunk begins at a multiple of its size among positions, which are not measured from the lane's column.

!s = !tile.fragment<[query 16, key 64], f32>
!pos = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @chunk(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %n: i32, %if: i1) -> !s {
    // CHECK: %[[ORIGIN:.*]] = arith.addi %arg4, %{{.*}} :
    // CHECK: %[[BEGIN:.*]] = tile.map %arg1 (%[[R:.*]]: i32) {
    // CHECK-NEXT: %[[R1:.*]] = arith.subi %[[R]], %[[ORIGIN]] :
    // CHECK-NEXT: %[[REST:.*]] = arith.remsi %[[R]], %arg5 :
    // CHECK: %[[NEGATIVE:.*]] = arith.cmpi slt, %[[REST]], %c0_i32 :
    // CHECK-NEXT: %[[MORE:.*]] = arith.addi %[[REST]], %arg5 :
    // CHECK-NEXT: %[[BACK:.*]] = arith.select %[[NEGATIVE]], %[[MORE]], %[[REST]] :
    // CHECK-NEXT: %[[B:.*]] = arith.subi %[[R1]], %[[BACK]] :
    // CHECK: tile.yield %[[B]] :
    // CHECK: %[[END:.*]] = tile.map %arg1
    // CHECK: tile.mask %arg0 if %arg6 where %{{.*}}, %[[BEGIN]], %[[END]]
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see chunk(8) ends %n if %if : !pos, !s
    return %0 : !s
  }
}
