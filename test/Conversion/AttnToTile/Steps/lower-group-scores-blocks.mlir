// RUN: attn-opt %s --attn-lower-group-scores | FileCheck %s

// Scales of blocks are f32, and there are no zero points.

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!col = !tile.fragment<[key 32], f32>
!s = !tile.fragment<[query 16, key 32], f32>
gpu.module @kernels {
  func.func @blocks(%q: !q, %k: !k, %c0: !col, %c1: !col) -> !s {
    // CHECK: %[[D0:.*]] = tile.mma
    // CHECK-NEXT: %[[S0:.*]] = tile.map %[[D0]], %arg2 (%[[D:.*]]: f32, %[[C:.*]]: f32)
    // CHECK-NEXT: %[[P:.*]] = arith.mulf %[[C]], %[[D]] :
    // CHECK-NEXT: tile.yield %[[P]] :
    // CHECK: %[[D1:.*]] = tile.mma
    // CHECK-NEXT: %[[S1:.*]] = tile.map %[[D1]], %arg3, %[[S0]] (%[[D:.*]]: f32, %[[C:.*]]: f32, %[[L:.*]]: f32)
    // CHECK-NEXT: %[[P:.*]] = math.fma %[[C]], %[[D]], %[[L]] :
    // CHECK-NEXT: tile.yield %[[P]] :
    // CHECK: return %[[S1]] :
    %0 = attn.group_scores %q, %k scales %c0, %c1 : !col, !col per 32 : !q, !k -> !s
    return %0 : !s
  }
}
