// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// A mask of one side compares each column once, with the end of that side.

!s = !tile.fragment<[key 16, query 32], f32>
!pos = !tile.fragment<[query 32], i32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @window(
  func.func @window(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %n: i32, %if: i1, %begin: i32) -> !s {
    // CHECK: %[[FRONT:.*]] = tile.mask %arg0 if %arg6 where {{.*}} (%[[C:.*]]: i32, %[[BEGIN:.*]]: i32) {
    // CHECK-NEXT: %[[SEES:.*]] = arith.cmpi sge, %[[C]], %[[BEGIN]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see window(8) ends %n if %if begin %begin front : !pos, !s
    // CHECK: tile.mask %[[FRONT]] if %arg6 where {{.*}} (%[[C:.*]]: i32, %[[END:.*]]: i32) {
    // CHECK-NEXT: %[[SEES:.*]] = arith.cmpi slt, %[[C]], %[[END]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    %1 = attn.mask %0 at %at tokens %first to %end pos0 %pos0 see window(8) ends %n if %if begin %begin behind : !pos, !s
    return %1 : !s
  }
  // All rows see the same tokens from a begin on.
  // CHECK-LABEL: func.func @causal(
  func.func @causal(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32, %if: i1, %begin: i32) -> !s {
    // CHECK: %[[LOWER:.*]] = arith.subi %arg6,
    // CHECK: tile.mask %arg0 if %arg5 where {{.*}} (%[[C:.*]]: i32) {
    // CHECK-NEXT: %[[SEES:.*]] = arith.cmpi sge, %[[C]], %[[LOWER]] :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see causal if %if begin %begin front : !pos, !s
    return %0 : !s
  }
}
