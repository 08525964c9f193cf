// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s --check-prefix=INFER
// RUN: attn-opt %s --tile-infer-layouts --tile-allocate-shared --tile-to-machine | FileCheck %s --check-prefix=MACHINE

// Eight rows of queries are the right operand: tokens and features are rows of the left operands and of
// results. Keys and queries have one order of features, values and the accumulator another.
!queries = !tile.fragment<[query 8, feature 128], f16>
!keys = !tile.shared<key 32, feature 128, i4>
!values = !tile.shared<key 32, feature 128, i2>
!scores = !tile.fragment<[key 32, query 8], f32>
!acc = !tile.fragment<[feature 128, query 8], f32>
!rows = !tile.fragment<[query 8], f32>
!merged = !tile.fragment<[query 16], f32>
!share = !tile.fragment<[query 16, feature 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @few
  // INFER-LABEL: func.func @few
  // MACHINE-LABEL: func.func @few
  func.func @few(%x: f32, %i: i32, %end: i32, %out: !tile.buffer<f32>) attributes {tile.threads = 64 : i32} {
    %q = tile.alloc : !tile.shared<query 8, feature 128, f16>
    %k = tile.alloc : !keys
    %v = tile.alloc : !values
    %scratch = tile.alloc : !tile.scratch<8320>
    %none = arith.constant 0.0 : f32
    // INFER: tile.load {{.*}} -> <[query 8, feature 128], f16, rhs, runs 64 by 4>
    %queries = tile.load %q at %i : !tile.shared<query 8, feature 128, f16> -> !queries
    %zeroScores = tile.splat %none : f32 -> !scores
    %zeroAcc = tile.splat %none : f32 -> !acc
    %low = tile.splat %x : f32 -> !rows
    // Keys are tiny elements, too. Their features are contracted, so those of queries are divided once: for
    // i4 every second pair.
    // CHECK: tile.balance %{{.*}} for i4 : <[query 8, feature 128], f16> -> <[query 8, feature 128], f16>
    // INFER: tile.balance {{.*}} -> <[query 8, feature 128], f16, rhs, runs 64 by 4>
    // MACHINE: llvm.mlir.constant(dense<6.250000e-02> : vector<2xf16>)
    %even = tile.balance %queries for i4 : !queries -> !queries
    // INFER: scf.for {{.*}} -> (!tile.fragment<[query 8], f32, col>, !tile.fragment<[feature 128, query 8], f32, acc, runs 128>)
    %max, %acc = scf.for %j = %i to %end step %end iter_args(%m = %low, %a = %zeroAcc) -> (!rows, !acc) : i32 {
      %codes = tile.load_rhs %k : !keys -> !tile.fragment<[key 32, feature 128], i4>
      %wide = tile.widen tiny %codes : !tile.fragment<[key 32, feature 128], i4> -> !tile.fragment<[key 32, feature 128], f16>
      // INFER: tile.mma {{.*}} : !tile.fragment<[key 32, feature 128], f16, rhs, runs 64 by 4>, !tile.fragment<[query 8, feature 128], f16, rhs, runs 64 by 4>, <[key 32, query 8], f32, acc>
      // MACHINE-COUNT-16: nvvm.mma.sync
      %s = tile.mma %wide, %even, %zeroScores : !tile.fragment<[key 32, feature 128], f16>, !queries, !scores -> !scores
      // INFER: tile.reduce max {{.*}} -> <[query 8], f32, col>
      %largest = tile.reduce max %s : !scores -> !rows
      // CHECK: tile.cast %{{.*}} : <[key 32, query 8], f32> -> <[query 8, key 32], f16>
      // INFER: tile.cast {{.*}} -> <[query 8, key 32], f16, rhs>
      // MACHINE-COUNT-4: tile.move_matrix
      %p = tile.cast %s : !scores -> !tile.fragment<[query 8, key 32], f16>
      %crumbs = tile.load_rhs %v : !values -> !tile.fragment<[feature 128, key 32], i2>
      // CHECK: tile.widen tiny %{{.*}} : <[feature 128, key 32], i2> -> <[feature 128, key 32], f16>
      // One mask makes two tiny elements: nothing is subtracted.
      // MACHINE-NOT: llvm.fsub
      %tiny = tile.widen tiny %crumbs : !tile.fragment<[feature 128, key 32], i2> -> !tile.fragment<[feature 128, key 32], f16>
      // MACHINE-COUNT-16: nvvm.mma.sync
      // MACHINE-NOT: nvvm.mma.sync
      %sum = tile.mma %tiny, %p, %a : !tile.fragment<[feature 128, key 32], f16>, !tile.fragment<[query 8, key 32], f16>, !acc -> !acc
      scf.yield %largest, %sum : !rows, !acc
    }
    // An element that lies 2 bits further up was left 4 times as large.
    // CHECK: tile.restore %{{.*}} of i2 : <[feature 128, query 8], f32> -> <[feature 128, query 8], f32>
    // MACHINE-DAG: arith.constant 0x4B800000 : f32
    // MACHINE-DAG: arith.constant 0x4A800000 : f32
    // MACHINE-DAG: arith.constant 0x49800000 : f32
    // MACHINE-DAG: arith.constant 2.621440e+05 : f32
    // MACHINE-DAG: arith.constant 6.553600e+04 : f32
    %whole = tile.restore %acc of i2 : !acc -> !acc
    // The merged state has sixteen rows of queries, like any state.
    // INFER: tile.merge_warps {{.*}} : <[query 8], f32, col>, <[query 8], f32, col>, <[feature 128, query 8], f32, acc, runs 128>, {{.*}} -> <[query 16], f32, row>, <[query 16], f32, row>, <[query 16, feature 64], f32, acc>
    %0:3 = tile.merge_warps %max, %max, %whole unit %x warps 2 warp %i scratch %scratch : !rows, !rows, !acc, !tile.scratch<8320> -> !merged, !merged, !share
    tile.store %0#2 to %out lines %i (%line: i32) {
      %at = arith.extsi %line : i32 to i64
      tile.yield %at : i64
    } : !share -> !tile.buffer<f32>
    return
  }
}
