// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s --check-prefix=INFER

// Keys and values of 8 bits are loaded as right operands, keys along their lines and values across, and widened.
!queries = !tile.fragment<[query 16, feature 64], bf16>
!keys = !tile.shared<key 16, feature 64, f8E4M3FN>
!scores = !tile.fragment<[query 16, key 16], f32>
!acc = !tile.fragment<[query 16, feature 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @codes
  // INFER-LABEL: func.func @codes
  func.func @codes(%x: f32, %i: i32) {
    %q = tile.alloc : !tile.shared<query 16, feature 64, bf16>
    // INFER: tile.alloc : !tile.shared<key 16, feature 64, f8E4M3FN, swizzled>
    %k = tile.alloc : !keys
    %queries = tile.load %q at %i : !tile.shared<query 16, feature 64, bf16> -> !queries
    %none = tile.splat %x : f32 -> !scores
    // CHECK: %[[C:.*]] = tile.load_rhs %{{.*}} : <key 16, feature 64, f8E4M3FN> -> <[key 16, feature 64], f8E4M3FN>
    // INFER: tile.load_rhs {{.*}} -> <[key 16, feature 64], f8E4M3FN, rhs>
    %codes = tile.load_rhs %k : !keys -> !tile.fragment<[key 16, feature 64], f8E4M3FN>
    // CHECK: %[[W:.*]] = tile.widen %[[C]] : <[key 16, feature 64], f8E4M3FN> -> <[key 16, feature 64], bf16>
    // INFER: tile.widen {{.*}} -> <[key 16, feature 64], bf16, rhs>
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 64], f8E4M3FN> -> !tile.fragment<[key 16, feature 64], bf16>
    // CHECK: tile.dot %{{.*}}, %[[W]], %{{.*}} : !tile.fragment<[query 16, feature 64], bf16>, !tile.fragment<[key 16, feature 64], bf16>, <[query 16, key 16], f32>
    // INFER: tile.dot {{.*}} : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.fragment<[key 16, feature 64], bf16, rhs>
    %s = tile.dot %queries, %wide, %none : !queries, !tile.fragment<[key 16, feature 64], bf16>, !scores -> !scores
    %p = tile.cast %s : !scores -> !tile.fragment<[query 16, key 16], bf16>
    // CHECK: tile.load_rhs %{{.*}} : <key 16, feature 64, f8E4M3FN> -> <[feature 64, key 16], f8E4M3FN>
    %values = tile.load_rhs %k : !keys -> !tile.fragment<[feature 64, key 16], f8E4M3FN>
    %wideValues = tile.widen %values : !tile.fragment<[feature 64, key 16], f8E4M3FN> -> !tile.fragment<[feature 64, key 16], bf16>
    %zero = tile.splat %x : f32 -> !acc
    // INFER: tile.dot {{.*}} : !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.fragment<[feature 64, key 16], bf16, rhs>
    %o = tile.dot %p, %wideValues, %zero : !tile.fragment<[query 16, key 16], bf16>, !tile.fragment<[feature 64, key 16], bf16>, !acc -> !acc
    return
  }
}
