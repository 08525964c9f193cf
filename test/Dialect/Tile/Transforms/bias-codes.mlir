// RUN: attn-opt %s --tile-bias-codes | FileCheck %s

!q = !tile.fragment<[query 16, feature 64], f16, lhs, runs 64 by 4>
!codes = !tile.fragment<[key 16, feature 64], i4, rhs, runs 64 by 4>
!keys = !tile.fragment<[key 16, feature 64], f16, rhs, runs 64 by 4>
!s = !tile.fragment<[query 16, key 16], f32, acc>
!tile16 = !tile.shared<key 16, feature 64, i4, swizzled>
gpu.module @kernels {
  // The left operand is there in front of the loop, and so is what the dots start from.
  // CHECK-LABEL: func.func @known(
  // CHECK: %[[BIASES:.*]] = tile.biases i4 -> <[key 16, feature 64], f16, rhs, runs 64 by 4>
  // CHECK: %[[PRODUCT:.*]] = tile.dot %{{.*}}, %[[BIASES]],
  // CHECK: %[[EXCESS:.*]] = tile.reduce max %[[PRODUCT]] : {{.*}} -> <[query 16], f32, row>
  // CHECK: %[[START:.*]] = tile.map %[[EXCESS]]
  // CHECK: arith.negf
  // CHECK: scf.for
  // CHECK: %[[KEYS:.*]] = tile.widen biased
  // CHECK: %[[ACC:.*]] = tile.map %[[START]]
  // CHECK: tile.dot %{{.*}}, %[[KEYS]], %[[ACC]]
  func.func @known(%q: !q, %from: i32, %to: i32, %codes: !codes, %first: !s) -> !s {
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1 : i32
    %none = tile.splat %zero : f32 -> <[query 16, key 16], f32, acc>
    %0 = scf.for %i = %from to %to step %one iter_args(%x = %first) -> (!s) : i32 {
      %keys = tile.widen %codes : !codes -> !keys
      %y = tile.dot %q, %keys, %none : !q, !keys, !s -> !s
      scf.yield %y : !s
    }
    return %0 : !s
  }
  // Parts have starts of their own.
  // CHECK-LABEL: func.func @parts(
  // CHECK-COUNT-2: tile.biases i4 -> <[key 16, feature 64]
  // CHECK: scf.for
  // CHECK: tile.widen biased
  // CHECK-NOT: tile.biases
  func.func @parts(%q: !tile.fragment<[query 16, feature 128], f16, lhs, runs 64 by 4>, %from: i32, %to: i32,
                   %codes: !tile.fragment<[key 16, feature 128], i4, rhs, runs 64 by 4>, %first: !s) -> !s {
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1 : i32
    %none = tile.splat %zero : f32 -> <[query 16, key 16], f32, acc>
    %0 = scf.for %i = %from to %to step %one iter_args(%x = %first) -> (!s) : i32 {
      %keys = tile.widen %codes : !tile.fragment<[key 16, feature 128], i4, rhs, runs 64 by 4> -> !tile.fragment<[key 16, feature 128], f16, rhs, runs 64 by 4>
      %q0 = tile.part %q from 0 : !tile.fragment<[query 16, feature 128], f16, lhs, runs 64 by 4> -> !q
      %q1 = tile.part %q from 64 : !tile.fragment<[query 16, feature 128], f16, lhs, runs 64 by 4> -> !q
      %k0 = tile.part %keys from 0 : !tile.fragment<[key 16, feature 128], f16, rhs, runs 64 by 4> -> !keys
      %k1 = tile.part %keys from 64 : !tile.fragment<[key 16, feature 128], f16, rhs, runs 64 by 4> -> !keys
      %y = tile.dot %q0, %k0, %none : !q, !keys, !s -> !s
      %z = tile.dot %q1, %k1, %none : !q, !keys, !s -> !s
      %sum = tile.map %y, %z (%a: f32, %b: f32) {
        %c = arith.addf %a, %b : f32
        tile.yield %c : f32
      } : !s, !s -> !s
      scf.yield %sum : !s
    }
    return %0 : !s
  }
  // What is added to, what changes with the tile, and what something else reads stay exact.
  // CHECK-LABEL: func.func @stays(
  // CHECK-NOT: biased
  func.func @stays(%q: !q, %from: i32, %to: i32, %codes: !codes, %first: !s) -> !s {
    %one = arith.constant 1 : i32
    %0 = scf.for %i = %from to %to step %one iter_args(%x = %first) -> (!s) : i32 {
      %keys = tile.widen %codes : !codes -> !keys
      %y = tile.dot %q, %keys, %x : !q, !keys, !s -> !s
      scf.yield %y : !s
    }
    return %0 : !s
  }
  // CHECK-LABEL: func.func @changes(
  // CHECK-NOT: biased
  func.func @changes(%tile: !tile.shared<query 16, feature 64, f16, swizzled>, %from: i32, %to: i32, %codes: !codes, %first: !s) -> !s {
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1 : i32
    %none = tile.splat %zero : f32 -> <[query 16, key 16], f32, acc>
    %0 = scf.for %i = %from to %to step %one iter_args(%x = %first) -> (!s) : i32 {
      %q = tile.load %tile at %i : !tile.shared<query 16, feature 64, f16, swizzled> -> !q
      %keys = tile.widen %codes : !codes -> !keys
      %y = tile.dot %q, %keys, %none : !q, !keys, !s -> !s
      scf.yield %y : !s
    }
    return %0 : !s
  }
}
