// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

!keys = !tile.shared<key 16, feature 32, f8E4M3FN, swizzled>
gpu.module @kernels {
  // Along a line two neighbours are one load, at columns 2q and 2q + 8; 2 x 2 blocks of 8 keys and 16 features.
  // CHECK-LABEL: func.func @keys(
  // CHECK-COUNT-8: llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr<3> -> i16
  // CHECK-NOT: llvm.load
  // CHECK-COUNT-8: nvvm.convert.f8x2.to.f16x2 {{.*}} : vector<2xi8>(f8E4M3FN) -> vector<2xf16>
  // CHECK-NOT: nvvm.convert
  // CHECK-COUNT-4: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @keys(%q: !tile.fragment<[query 16, feature 32], f16, lhs>, %k: !keys, %s: !tile.fragment<[query 16, key 16], f32, acc>) {
    %codes = tile.load_rhs %k : !keys -> !tile.fragment<[key 16, feature 32], f8E4M3FN, rhs>
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 32], f8E4M3FN, rhs> -> !tile.fragment<[key 16, feature 32], f16, rhs>
    %0 = tile.dot %q, %wide, %s : !tile.fragment<[query 16, feature 32], f16, lhs>, !tile.fragment<[key 16, feature 32], f16, rhs>, !tile.fragment<[query 16, key 16], f32, acc> -> !tile.fragment<[query 16, key 16], f32, acc>
    return
  }
  // Across lines every code is a load of its own; what bf16 is made of are the exact f16.
  // CHECK-LABEL: func.func @values(
  // CHECK-COUNT-16: llvm.load {{.*}} {alignment = 1 : i64} : !llvm.ptr<3> -> i8
  // CHECK-NOT: llvm.load
  // CHECK: nvvm.convert.f8x2.to.f16x2
  // CHECK: arith.extf {{.*}} : f16 to f32
  // CHECK: nvvm.convert.f32x2.to.bf16x2
  // CHECK-COUNT-4: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @values(%p: !tile.fragment<[query 16, key 16], bf16, lhs>, %v: !keys, %o: !tile.fragment<[query 16, feature 32], f32, acc>) {
    %codes = tile.load_rhs %v : !keys -> !tile.fragment<[feature 32, key 16], f8E4M3FN, rhs>
    %wide = tile.widen %codes : !tile.fragment<[feature 32, key 16], f8E4M3FN, rhs> -> !tile.fragment<[feature 32, key 16], bf16, rhs>
    %0 = tile.dot %p, %wide, %o : !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.fragment<[feature 32, key 16], bf16, rhs>, !tile.fragment<[query 16, feature 32], f32, acc> -> !tile.fragment<[query 16, feature 32], f32, acc>
    return
  }
}
