// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s

!queries = !tile.shared<query 16, feature 80, bf16>
!keys = !tile.shared<key 32, feature 80, bf16>
!scores = !tile.fragment<[query 16, key 32], f32>
!acc = !tile.fragment<[query 16, feature 80], f32>

// Scores have queries along rows and keys along columns: one-axis fragments follow the scores that they
// combine with.
// CHECK-LABEL: func.func @forward
// CHECK-NOT: tile.convert
gpu.module @kernels {
  func.func @forward(%i: i32, %x: f32, %t: i1, %b: !tile.buffer<i32>) {
    // Every shared tile and ring is swizzled; scratch has no shape.
    // CHECK: tile.alloc : !tile.shared<query 16, feature 80, bf16, swizzled>
    %q = tile.alloc : !queries
    // CHECK: tile.alloc : !tile.ring<2, <key 32, feature 80, bf16, swizzled>>
    %ring = tile.alloc : !tile.ring<2, !keys>
    // CHECK: tile.alloc : !tile.scratch<64>
    %scratch = tile.alloc : !tile.scratch<64>
    // CHECK: tile.ring_stage {{.*}} : <2, <key 32, feature 80, bf16, swizzled>> -> <key 32, feature 80, bf16, swizzled>
    %k = tile.ring_stage %ring[%i] : <2, !keys> -> !keys
    // CHECK: tile.load {{.*}} -> <[query 16, feature 80], bf16, lhs>
    %lhs = tile.load %q at %i : !queries -> !tile.fragment<[query 16, feature 80], bf16>
    // CHECK: tile.splat {{.*}} -> <[query 16, key 32], f32, acc>
    %zero = tile.splat %x : f32 -> !scores
    // CHECK: tile.mma {{.*}} -> <[query 16, key 32], f32, acc>
    %s = tile.mma %lhs, %k, %zero : !tile.fragment<[query 16, feature 80], bf16>, !keys, !scores -> !scores
    // CHECK: tile.coordinates {{.*}} : <[key 32], i32, col>
    %key = tile.coordinates %i : !tile.fragment<[key 32], i32>
    // CHECK: tile.load_vector
    // CHECK: -> <[query 16], i32, row>
    %position = tile.load_vector %b (%line: i32) {
      %index = arith.extsi %line : i32 to i64
      tile.yield %index : i64
    } : <i32> -> !tile.fragment<[query 16], i32>
    // CHECK: tile.mask
    %masked = tile.mask %s if %t where %position, %key (%p: i32, %n: i32) {
      %seen = arith.cmpi sle, %n, %p : i32
      tile.yield %seen : i1
    } : !scores, !tile.fragment<[query 16], i32>, !tile.fragment<[key 32], i32> -> !scores
    // CHECK: tile.reduce add {{.*}} -> <[query 16], f32, row, partial>
    %sum = tile.reduce add %masked : !scores -> !tile.fragment<[query 16], f32, partial>
    // CHECK: tile.complete {{.*}} -> <[query 16], f32, row>
    %whole = tile.complete %sum : !tile.fragment<[query 16], f32, partial> -> !tile.fragment<[query 16], f32>
    // CHECK: tile.reduce add {{.*}} -> <[key 32], f32, col>
    %columns = tile.reduce add %masked : !scores -> !tile.fragment<[key 32], f32>
    // Accumulators become left operands by a cast, at no cost.
    // CHECK: tile.cast {{.*}} -> <[query 16, key 32], bf16, lhs>
    %p = tile.cast %masked : !scores -> !tile.fragment<[query 16, key 32], bf16>
    // CHECK: tile.splat {{.*}} -> <[query 16, feature 80], f32, acc>
    %o = tile.splat %x : f32 -> !acc
    // CHECK: tile.mma {{.*}} -> <[query 16, feature 80], f32, acc>
    %r = tile.mma %p, %k, %o : !tile.fragment<[query 16, key 32], bf16>, !keys, !acc -> !acc
    return
  }
}
