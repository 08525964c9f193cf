// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s

!queries = !tile.shared<query 16, feature 64, bf16>
!keys = !tile.shared<key 32, feature 64, bf16>
!scores = !tile.fragment<[query 16, key 32], f32>
!transposed = !tile.fragment<[key 32, query 16], f32>
!max = !tile.fragment<[query 16], f32>

gpu.module @kernels {
  // Queries are rows of S and columns of St. Values that both need are read once and converted; scalars and
  // coordinates are made twice; a maximum has the layout of its scores.
  // CHECK-LABEL: func.func @both
  func.func @both(%q: !queries, %k: !keys, %i: i32, %x: f32, %lse: !tile.buffer<f32>) {
    // CHECK: tile.splat {{.*}} -> <[query 16], f32, row>
    // CHECK-NEXT: %[[UNIT:.*]] = tile.splat {{.*}} -> <[query 16], f32, col>
    %unit = tile.splat %x : f32 -> !max
    // CHECK: %[[KEY:.*]] = tile.coordinates {{.*}} : <[key 32], i32, col>
    // CHECK-NEXT: %[[KEY_ROW:.*]] = tile.coordinates {{.*}} : <[key 32], i32, row>
    %key = tile.coordinates %i : !tile.fragment<[key 32], i32>
    // CHECK: %[[LSE:.*]] = tile.load_vector
    // CHECK: } : <f32> -> <[query 16], f32, row>
    // CHECK-NEXT: %[[LSE_COL:.*]] = tile.convert %[[LSE]] : <[query 16], f32, row> -> <[query 16], f32, col>
    %l = tile.load_vector %lse (%line: i32) {
      %index = arith.extsi %line : i32 to i64
      tile.yield %index : i64
    } : <f32> -> !max
    %a = tile.splat %x : f32 -> !scores
    %s = tile.mma %q at %i, %k, %a : !queries, !keys, !scores -> !scores
    // CHECK: %[[MAX:.*]] = tile.reduce max {{.*}} -> <[query 16], f32, row>
    // CHECK-NEXT: %[[MAX_COL:.*]] = tile.convert %[[MAX]] : <[query 16], f32, row> -> <[query 16], f32, col>
    %m = tile.reduce max %s : !scores -> !max
    %p = tile.map %s, %l, %unit, %key (%v: f32, %w: f32, %u: f32, %n: i32) {
      tile.yield %v : f32
    } : !scores, !max, !max, !tile.fragment<[key 32], i32> -> !scores
    // CHECK: tile.mma {{.*}} -> <[key 32, query 16], f32, acc>
    %b = tile.splat %x : f32 -> !transposed
    %st = tile.mma %k at %i, %q, %b : !keys, !queries, !transposed -> !transposed
    // CHECK: tile.map %{{.*}}, %[[LSE_COL]], %[[UNIT]], %[[MAX_COL]], %[[KEY_ROW]]
    %pt = tile.map %st, %l, %unit, %m, %key (%v: f32, %w: f32, %u: f32, %o: f32, %n: i32) {
      tile.yield %v : f32
    } : !transposed, !max, !max, !max, !tile.fragment<[key 32], i32> -> !transposed
    // A program that exchanges axes gets the result in the layout of its use: once as a left operand, once as
    // scores.
    // CHECK: %[[CAST:.*]] = tile.cast {{.*}} -> <[query 16, key 32], bf16, lhs>
    %r = tile.cast %p : !scores -> !tile.fragment<[query 16, key 32], bf16>
    // CHECK: tile.convert %[[CAST]] : <[query 16, key 32], bf16, lhs> -> <[key 32, query 16], bf16, lhs>
    %rt = tile.convert %r : !tile.fragment<[query 16, key 32], bf16> -> !tile.fragment<[key 32, query 16], bf16>
    %d = tile.splat %x : f32 -> !tile.fragment<[key 32, feature 64], f32>
    %dk = tile.mma %rt, %q, %d : !tile.fragment<[key 32, query 16], bf16>, !queries, !tile.fragment<[key 32, feature 64], f32> -> !tile.fragment<[key 32, feature 64], f32>
    // CHECK: tile.convert {{.*}} : <[query 16, key 32], f32, acc> -> <[key 32, query 16], f32, acc>
    %turned = tile.convert %p : !scores -> !transposed
    %lost = tile.reduce add %turned : !transposed -> !max
    return
  }
}
