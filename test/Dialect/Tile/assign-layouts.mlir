// RUN: attn-opt %s --tile-assign-layouts | FileCheck %s

!queries = !tile.shared<query 16, feature 80, bf16>
!keys = !tile.shared<key 32, feature 80, bf16>
!scores = !tile.fragment<[query 16, key 32], f32>
!acc = !tile.fragment<[query 16, feature 80], f32>

// Scores have queries along rows and keys along columns: one-axis fragments follow their axis.
// CHECK-LABEL: func.func @forward
gpu.module @kernels {
  func.func @forward(%i: i32, %x: f32, %b: !tile.buffer<i32>) {
    // Every shared tile and ring is swizzled; scratch has no shape.
    // CHECK: tile.alloc : !tile.shared<query 16, feature 80, bf16, swizzled>
    %q = tile.alloc : !queries
    // CHECK: tile.alloc : !tile.ring<2, <key 32, feature 80, bf16, swizzled>>
    %ring = tile.alloc : !tile.ring<2, !keys>
    // CHECK: tile.alloc : !tile.scratch<64>
    %scratch = tile.alloc : !tile.scratch<64>
    // CHECK: tile.slot {{.*}} : <2, <key 32, feature 80, bf16, swizzled>> -> <key 32, feature 80, bf16, swizzled>
    %k = tile.slot %ring[%i] : <2, !keys> -> !keys
    // CHECK: tile.load {{.*}} -> <[query 16, feature 80], bf16, lhs>
    %lhs = tile.load %q at %i : !queries -> !tile.fragment<[query 16, feature 80], bf16>
    // CHECK: tile.splat {{.*}} -> <[query 16, key 32], f32, acc>
    %zero = tile.splat %x : f32 -> !scores
    // CHECK: tile.dot {{.*}} -> <[query 16, key 32], f32, acc>
    %s = tile.dot %lhs, %k, %zero : !tile.fragment<[query 16, feature 80], bf16>, !keys, !scores -> !scores
    // CHECK: tile.coordinates {{.*}} : <[key 32], i32, col>
    %key = tile.coordinates %i : !tile.fragment<[key 32], i32>
    // CHECK: tile.load_vector
    // CHECK: -> <[query 16], i32, row>
    %position = tile.load_vector %b {
    ^bb0(%line: i32):
      %index = arith.extsi %line : i32 to i64
      tile.yield %index : i64
    } : <i32> -> !tile.fragment<[query 16], i32>
    // CHECK: tile.reduce add {{.*}} -> <[query 16], f32, row, partial>
    %sum = tile.reduce add %s : !scores -> !tile.fragment<[query 16], f32, partial>
    // CHECK: tile.cast {{.*}} -> <[query 16, key 32], bf16, lhs>
    %p = tile.cast %s : !scores -> !tile.fragment<[query 16, key 32], bf16>
    %o = tile.splat %x : f32 -> !acc
    // Values that a loop or a branch carries get layouts too.
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // CHECK: scf.for {{.*}} -> (!tile.fragment<[query 16, feature 80], f32, acc>)
    %r = scf.for %n = %c0 to %i step %c1 iter_args(%a = %o) -> (!acc) : i32 {
      // CHECK: tile.dot {{.*}} -> <[query 16, feature 80], f32, acc>
      %next = tile.dot %p, %k, %a : !tile.fragment<[query 16, key 32], bf16>, !keys, !acc -> !acc
      scf.yield %next : !acc
    }
    return
  }

  // The transposed kernel: keys along rows. The same operations get the other layouts.
  // CHECK-LABEL: func.func @transposed
  func.func @transposed(%i: i32, %x: f32) {
    %q = tile.alloc : !queries
    %k = tile.alloc : !keys
    %zero = tile.splat %x : f32 -> !tile.fragment<[key 32, query 16], f32>
    // CHECK: tile.dot {{.*}} -> <[key 32, query 16], f32, acc>
    %s = tile.dot %k at %i, %q, %zero : !keys, !queries, !tile.fragment<[key 32, query 16], f32> -> !tile.fragment<[key 32, query 16], f32>
    // CHECK: tile.coordinates {{.*}} : <[key 32], i32, row>
    %key = tile.coordinates %i : !tile.fragment<[key 32], i32>
    // CHECK: tile.splat {{.*}} -> <[query 16], f32, col>
    %max = tile.splat %x : f32 -> !tile.fragment<[query 16], f32>
    return
  }

  // What the file decides stays.
  // CHECK-LABEL: func.func @given
  func.func @given(%x: f32) {
    // CHECK: tile.splat {{.*}} -> <[query 16], f32, col>
    %max = tile.splat %x : f32 -> !tile.fragment<[query 16], f32, col>
    return
  }
}
