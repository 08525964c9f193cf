// RUN: attn-opt %s --attn-lower-group-scores | FileCheck %s

// Few rows are the right operand. One group has no size, and without a factor of all scores nothing follows.

!q = !tile.fragment<[query 8, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!col = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 8], f32>
!s = !tile.fragment<[key 32, query 8], f32>
gpu.module @kernels {
  func.func @tokens_first(%q: !q, %k: !k, %scale: !col, %zero: !col, %sum: !row) -> !s {
    // CHECK-NOT: tile.part
    // CHECK: %[[DOT:.*]] = tile.mma %arg1, %arg0, %{{.*}} :
    // CHECK-NEXT: %[[S:.*]] = tile.map %[[DOT]], %arg2, %arg3, %arg4 (
    // CHECK-NOT: tile.map
    // CHECK: return %[[S]] :
    %0 = "attn.group_scores"(%q, %k, %scale, %zero, %sum) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (!q, !k, !col, !col, !row) -> !s
    return %0 : !s
  }
}
