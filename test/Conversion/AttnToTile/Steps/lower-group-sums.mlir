// RUN: attn-opt %s --attn-lower-group-sums | FileCheck %s

// An MMA with ones sums a group's features; all columns of the product are alike. Few rows are its right operand.

!q = !tile.fragment<[query 16, feature 128], f16>
!few = !tile.fragment<[query 8, feature 64], bf16>
!row = !tile.fragment<[query 16], f32>
!eight = !tile.fragment<[query 8], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @groups(
  func.func @groups(%q: !q) -> (!row, !row) {
    // CHECK-NEXT: %[[Q0:.*]] = tile.part %arg0 from 0 : <[query 16, feature 128], f16> -> <[query 16, feature 64], f16>
    // CHECK-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 : f16
    // CHECK-NEXT: %[[ONES:.*]] = tile.splat %[[ONE]] : f16 -> <[key 16, feature 64], f16>
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[NONE:.*]] = tile.splat %[[ZERO]] : f32 -> <[query 16, key 16], f32>
    // CHECK-NEXT: %[[DOT:.*]] = tile.mma %[[Q0]], %[[ONES]], %[[NONE]] :
    // CHECK-NEXT: %[[SUM:.*]] = tile.reduce max %[[DOT]] :
    // CHECK-NEXT: %[[Q1:.*]] = tile.part %arg0 from 64 :
    // CHECK: %[[DOT1:.*]] = tile.mma %[[Q1]], %{{.*}}, %{{.*}} :
    // CHECK-NEXT: %[[SUM1:.*]] = tile.reduce max %[[DOT1]] :
    // CHECK-NEXT: return %[[SUM]], %[[SUM1]] :
    %0:2 = attn.group_sums %q per 64 : !q -> !row, !row
    return %0#0, %0#1 : !row, !row
  }
  // CHECK-LABEL: func.func @few_rows(
  func.func @few_rows(%q: !few) -> !eight {
    // CHECK: %[[ONES:.*]] = tile.splat %{{.*}} : bf16 -> <[key 16, feature 64], bf16>
    // CHECK: %[[NONE:.*]] = tile.splat %{{.*}} : f32 -> <[key 16, query 8], f32>
    // CHECK-NEXT: %[[DOT:.*]] = tile.mma %[[ONES]], %arg0, %[[NONE]] :
    // CHECK-NEXT: tile.reduce max %[[DOT]] :
    %0 = attn.group_sums %q : !few -> !eight
    return %0 : !eight
  }
}
