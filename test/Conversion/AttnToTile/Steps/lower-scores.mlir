// RUN: attn-opt %s --attn-lower-scores | FileCheck %s

// The operand whose axis comes first in the scores is the left one. Factors of all scores and of tokens follow the
// MMA.

!q = !tile.fragment<[query 16, feature 64], bf16>
!few = !tile.fragment<[query 8, feature 64], bf16>
!k = !tile.shared<key 64, feature 64, bf16>
!wide = !tile.fragment<[key 64, feature 64], bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!t = !tile.fragment<[key 64, query 8], f32>
!ofTokens = !tile.fragment<[key 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @rows_first(
  func.func @rows_first(%q: !q, %k: !k, %scale: f32) -> !s {
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[NONE:.*]] = tile.splat %[[ZERO]] :
    // CHECK-NEXT: %[[S:.*]] = tile.mma %arg0, %arg1, %[[NONE]] :
    // CHECK-NEXT: %[[SCALED:.*]] = tile.map %[[S]] (%[[X:.*]]: f32) {
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[X]], %arg2 :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: return %[[SCALED]] :
    %s = attn.scores mma %q, %k times %scale : !q, !k -> !s
    return %s : !s
  }
  // CHECK-LABEL: func.func @tokens_first(
  func.func @tokens_first(%q: !few, %k: !wide, %begin: !t, %scale: f32, %of: !ofTokens) -> !t {
    // CHECK-NEXT: %[[S:.*]] = tile.mma %arg1, %arg0, %arg2 :
    // CHECK-NEXT: %[[SCALED:.*]] = tile.map %[[S]], %arg4 (%[[X:.*]]: f32, %[[OF_TOKEN:.*]]: f32) {
    // CHECK-NEXT: %[[FACTOR:.*]] = arith.mulf %[[OF_TOKEN]], %arg3 :
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[X]], %[[FACTOR]] :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: return %[[SCALED]] :
    %s = attn.scores mma %q, %k plus %begin : !t times %scale tokens %of : !ofTokens : !few, !wide -> !t
    return %s : !t
  }
}
