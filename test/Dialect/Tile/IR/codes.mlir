// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s --check-prefix=INFER

// Keys and values of 8 bits are loaded as right operands, keys along their lines and values across, and
// widened.
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
    // INFER: tile.load_rhs {{.*}} -> <[key 16, feature 64], f8E4M3FN, rhs, runs 64>
    %codes = tile.load_rhs %k : !keys -> !tile.fragment<[key 16, feature 64], f8E4M3FN>
    // CHECK: %[[W:.*]] = tile.widen %[[C]] : <[key 16, feature 64], f8E4M3FN> -> <[key 16, feature 64], bf16>
    // INFER: tile.widen {{.*}} -> <[key 16, feature 64], bf16, rhs, runs 64>
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 64], f8E4M3FN> -> !tile.fragment<[key 16, feature 64], bf16>
    // CHECK: tile.mma %{{.*}}, %[[W]], %{{.*}} : !tile.fragment<[query 16, feature 64], bf16>, !tile.fragment<[key 16, feature 64], bf16>, <[query 16, key 16], f32>
    // INFER: tile.mma {{.*}} : !tile.fragment<[query 16, feature 64], bf16, lhs, runs 64>, !tile.fragment<[key 16, feature 64], bf16, rhs, runs 64>, <[query 16, key 16], f32, acc> ->
    %s = tile.mma %queries, %wide, %none : !queries, !tile.fragment<[key 16, feature 64], bf16>, !scores -> !scores
    %p = tile.cast %s : !scores -> !tile.fragment<[query 16, key 16], bf16>
    // CHECK: tile.load_rhs %{{.*}} : <key 16, feature 64, f8E4M3FN> -> <[feature 64, key 16], f8E4M3FN>
    %values = tile.load_rhs %k : !keys -> !tile.fragment<[feature 64, key 16], f8E4M3FN>
    %wideValues = tile.widen %values : !tile.fragment<[feature 64, key 16], f8E4M3FN> -> !tile.fragment<[feature 64, key 16], bf16>
    %zero = tile.splat %x : f32 -> !acc
    // INFER: tile.mma {{.*}} : !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.fragment<[feature 64, key 16], bf16, rhs, runs 64>, <[query 16, feature 64], f32, acc, runs 64> ->
    %o = tile.mma %p, %wideValues, %zero : !tile.fragment<[query 16, key 16], bf16>, !tile.fragment<[feature 64, key 16], bf16>, !acc -> !acc
    return
  }

  // Two stores, one of them in groups: each has its own order of the queries, for which the tile is read once
  // more. Both add to one accumulator, in the shorter of their runs. A loop carries it, a map scales it.
  // INFER-LABEL: func.func @several
  // INFER: tile.load {{.*}} -> <[query 16, feature 128], bf16, lhs, runs 64 by 4>
  // INFER: %[[Q:.*]] = tile.load {{.*}} -> <[query 16, feature 128], bf16, lhs, runs 64>
  // INFER: %[[P:.*]] = tile.part {{.*}} from 64 : <[query 16, feature 128], bf16, lhs, runs 64 by 4>
  // INFER: scf.for {{.*}} -> (!tile.fragment<[query 16, feature 128], f32, acc, runs 64>)
  // INFER: tile.mma %[[Q]],
  // INFER: tile.mma %[[P]],
  // INFER: tile.map
  // INFER: } : !tile.fragment<[query 16, feature 128], f32, acc, runs 64>, !tile.fragment<[query 16], f32, row>
  // INFER: tile.store
  // INFER: } : <[query 16, feature 128], f32, acc, runs 64>
  func.func @several(%x: f32, %i: i32, %end: i32, %out: !tile.buffer<f32>) {
    %q = tile.alloc : !tile.shared<query 16, feature 128, bf16>
    %k8 = tile.alloc : !tile.shared<key 16, feature 128, i8>
    %k4 = tile.alloc : !tile.shared<key 16, feature 128, i4>
    %queries = tile.load %q at %i : !tile.shared<query 16, feature 128, bf16> -> !tile.fragment<[query 16, feature 128], bf16>
    %part = tile.part %queries from 64 : <[query 16, feature 128], bf16> -> <[query 16, feature 64], bf16>
    %zero = tile.splat %x : f32 -> !tile.fragment<[query 16, feature 128], f32>
    %none = tile.splat %x : f32 -> !scores
    %o = scf.for %j = %i to %end step %end iter_args(%acc = %zero) -> (!tile.fragment<[query 16, feature 128], f32>) : i32 {
      %c8 = tile.load_rhs %k8 : !tile.shared<key 16, feature 128, i8> -> !tile.fragment<[key 16, feature 128], i8>
      %w8 = tile.widen %c8 : !tile.fragment<[key 16, feature 128], i8> -> !tile.fragment<[key 16, feature 128], bf16>
      %s0 = tile.mma %queries, %w8, %none : !tile.fragment<[query 16, feature 128], bf16>, !tile.fragment<[key 16, feature 128], bf16>, !scores -> !scores
      %c4 = tile.load_rhs %k4 per 64 : !tile.shared<key 16, feature 128, i4> -> !tile.fragment<[key 16, feature 128], i4>
      %w4 = tile.widen %c4 : !tile.fragment<[key 16, feature 128], i4> -> !tile.fragment<[key 16, feature 128], bf16>
      %p4 = tile.part %w4 from 64 : <[key 16, feature 128], bf16> -> <[key 16, feature 64], bf16>
      %s = tile.mma %part, %p4, %s0 : !tile.fragment<[query 16, feature 64], bf16>, !tile.fragment<[key 16, feature 64], bf16>, !scores -> !scores
      %p = tile.cast %s : !scores -> !tile.fragment<[query 16, key 16], bf16>
      %v8 = tile.load_rhs %k8 : !tile.shared<key 16, feature 128, i8> -> !tile.fragment<[feature 128, key 16], i8>
      %wv8 = tile.widen %v8 : !tile.fragment<[feature 128, key 16], i8> -> !tile.fragment<[feature 128, key 16], bf16>
      %v4 = tile.load_rhs %k4 per 64 : !tile.shared<key 16, feature 128, i4> -> !tile.fragment<[feature 128, key 16], i4>
      %wv4 = tile.widen %v4 : !tile.fragment<[feature 128, key 16], i4> -> !tile.fragment<[feature 128, key 16], bf16>
      %a = tile.mma %p, %wv8, %acc : !tile.fragment<[query 16, key 16], bf16>, !tile.fragment<[feature 128, key 16], bf16>, !tile.fragment<[query 16, feature 128], f32> -> !tile.fragment<[query 16, feature 128], f32>
      %b = tile.mma %p, %wv4, %a : !tile.fragment<[query 16, key 16], bf16>, !tile.fragment<[feature 128, key 16], bf16>, !tile.fragment<[query 16, feature 128], f32> -> !tile.fragment<[query 16, feature 128], f32>
      %m = tile.reduce max %s : !scores -> !tile.fragment<[query 16], f32>
      %scaled = tile.map %b, %m (%y: f32, %z: f32) {
        %product = arith.mulf %y, %z : f32
        tile.yield %product : f32
      } : !tile.fragment<[query 16, feature 128], f32>, !tile.fragment<[query 16], f32> -> !tile.fragment<[query 16, feature 128], f32>
      scf.yield %scaled : !tile.fragment<[query 16, feature 128], f32>
    }
    tile.store %o to %out lines %i (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !tile.fragment<[query 16, feature 128], f32> -> !tile.buffer<f32>
    return
  }

  // Tiles of 16-bit elements have features in ascending order, and so has everything added to the same
  // accumulator.
  // INFER-LABEL: func.func @mixed
  // INFER: tile.load_rhs {{.*}} -> <[feature 64, key 16], i8, rhs>
  // INFER: tile.mma {{.*}} -> <[query 16, feature 64], f32, acc>
  func.func @mixed(%p: !tile.fragment<[query 16, key 16], bf16>, %v8: !tile.shared<key 16, feature 64, i8>, %v16: !tile.shared<key 16, feature 64, bf16>, %acc: !acc) {
    %codes = tile.load_rhs %v8 : !tile.shared<key 16, feature 64, i8> -> !tile.fragment<[feature 64, key 16], i8>
    %wide = tile.widen %codes : !tile.fragment<[feature 64, key 16], i8> -> !tile.fragment<[feature 64, key 16], bf16>
    %a = tile.mma %p, %wide, %acc : !tile.fragment<[query 16, key 16], bf16>, !tile.fragment<[feature 64, key 16], bf16>, !acc -> !acc
    %b = tile.mma %p, %v16, %a : !tile.fragment<[query 16, key 16], bf16>, !tile.shared<key 16, feature 64, bf16>, !acc -> !acc
    return
  }

  // Latents: queries that become left operands in place, and panels of a tile of keys.
  // CHECK-LABEL: func.func @latent
  // CHECK: tile.panels %{{.*}} from %{{.*}} : <key 16, feature 576, f8E4M3FN> -> <key 16, feature 128, f8E4M3FN>
  // CHECK: tile.load_rhs %{{.*}} : <key 16, feature 576, f8E4M3FN> -> <[feature 64, key 16], f8E4M3FN>
  // CHECK: %[[Q:.*]], %{{.*}} = tile.narrow_tile %{{.*}} by %{{.*}} if %{{.*}} : <query 16, feature 576, bf16>, <8> -> <18432>
  // CHECK: tile.load_lhs %[[Q]] from 512 : <18432> -> <[query 16, feature 64], f16>
  func.func @latent(%k: !tile.shared<key 16, feature 576, f8E4M3FN>, %q: !tile.shared<query 16, feature 576, bf16>, %m: !tile.scratch<8>, %i: i32, %first: i1) {
    %panel = tile.panels %k from %i : <key 16, feature 576, f8E4M3FN> -> <key 16, feature 128, f8E4M3FN>
    %codes = tile.load_rhs %k : <key 16, feature 576, f8E4M3FN> -> <[feature 64, key 16], f8E4M3FN>
    %queries, %factor = tile.narrow_tile %q by %m if %first : <query 16, feature 576, bf16>, <8> -> <18432>
    %part = tile.load_lhs %queries from 512 : <18432> -> <[query 16, feature 64], f16>
    return
  }

  // Parts of an accumulator whose features have weights of their own.
  // CHECK-LABEL: func.func @parts
  // CHECK: tile.part %{{.*}} from 128 : <[query 16, feature 256], f32> -> <[query 16, feature 128], f32>
  // CHECK: tile.join %{{.*}}, %{{.*}} : !tile.fragment<[query 16, feature 128], f32>, !tile.fragment<[query 16, feature 128], f32> -> <[query 16, feature 256], f32>
  func.func @parts(%acc: !tile.fragment<[query 16, feature 256], f32>) {
    %a = tile.part %acc from 0 : <[query 16, feature 256], f32> -> <[query 16, feature 128], f32>
    %b = tile.part %acc from 128 : <[query 16, feature 256], f32> -> <[query 16, feature 128], f32>
    %c = tile.join %a, %b : !tile.fragment<[query 16, feature 128], f32>, !tile.fragment<[query 16, feature 128], f32> -> <[query 16, feature 256], f32>
    return
  }
}
