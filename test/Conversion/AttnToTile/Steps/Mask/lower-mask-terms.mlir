// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// A mask compares each column once for every end of its terms.

!s = !tile.fragment<[key 16, query 32], f32>
!pos = !tile.fragment<[query 32], i32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @all(
  func.func @all(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %if: i1) -> !s {
    // CHECK: %[[EXISTS:.*]] = arith.subi %arg3, %{{.*}} :
    // CHECK: %[[M:.*]] = tile.mask %arg0 if %arg5 where %{{.*}} (%[[C:.*]]: i32) {
    // CHECK-NEXT: %[[SEES:.*]] = arith.cmpi slt, %[[C]], %[[EXISTS]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    // CHECK: return %[[M]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see all if %if : !pos, !s
    return %0 : !s
  }
  // CHECK-LABEL: func.func @intersection(
  func.func @intersection(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %recent: i32, %if: i1) -> !s {
    // CHECK: tile.mask %arg0 if %arg6 where {{.*}} (%[[C:.*]]: i32, %[[CAUSAL:.*]]: i32, %[[BEGIN:.*]]: i32, %[[END:.*]]: i32) {
    // CHECK-NEXT: %[[A:.*]] = arith.cmpi slt, %[[C]], %[[CAUSAL]] :
    // CHECK-NEXT: %[[BEFORE:.*]] = arith.cmpi slt, %[[C]], %[[END]] :
    // CHECK-NEXT: %[[BEHIND:.*]] = arith.cmpi sge, %[[C]], %[[BEGIN]] :
    // CHECK-NEXT: %[[IN:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]] :
    // CHECK-NEXT: %[[SEES:.*]] = arith.andi %[[A]], %[[IN]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see causal and recent(8) ends %recent if %if : !pos, !s
    return %0 : !s
  }
}
