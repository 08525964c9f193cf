// RUN: attn-opt %s --tile-infer-layouts | FileCheck %s

!acc = !tile.fragment<[query 16, key 16], f32>
!lhs = !tile.fragment<[query 16, key 16], bf16>
!values = !tile.shared<key 16, feature 16, bf16>
!out = !tile.fragment<[query 16, feature 16], f32>
!rows = !tile.fragment<[query 16], f32>

gpu.module @kernels {
  // A loop carries the layout of its iterations, whatever enters it: an undefined left operand, sums that
  // begin with a scalar, and column maxima that come in along rows.
  // CHECK-LABEL: func.func @carried
  func.func @carried(%v: !values, %n: i32, %x: f32, %s: !acc, %st: !tile.fragment<[key 16, query 16], f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // CHECK: tile.undefined : <[query 16, key 16], bf16, lhs>
    %none = tile.undefined : !lhs
    // CHECK: tile.splat {{.*}} -> <[query 16], f32, row, partial>
    %zero = tile.splat %x : f32 -> !tile.fragment<[query 16], f32, partial>
    // CHECK: %[[FIRST:.*]] = tile.reduce max {{.*}} -> <[query 16], f32, row>
    // CHECK-NEXT: %[[ENTERS:.*]] = tile.convert %[[FIRST]] : <[query 16], f32, row> -> <[query 16], f32, col>
    %first = tile.reduce max %s : !acc -> !rows
    %o = tile.splat %x : f32 -> !out
    // CHECK: scf.for {{.*}} = %[[ENTERS]], {{.*}}) -> (!tile.fragment<[query 16], f32, col>, !tile.fragment<[query 16], f32, row, partial>, !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.fragment<[query 16, feature 16], f32, acc>)
    %r:4 = scf.for %i = %c0 to %n step %c1 iter_args(%m = %first, %sum = %zero, %p = %none, %a = %o)
        -> (!rows, !tile.fragment<[query 16], f32, partial>, !lhs, !out) : i32 {
      // CHECK-NOT: tile.convert
      %next = tile.mma %p, %v, %a : !lhs, !values, !out -> !out
      %max = tile.reduce max %st : !tile.fragment<[key 16, query 16], f32> -> !rows
      %larger = tile.map %m, %max (%y: f32, %z: f32) {
        %w = arith.maxnumf %y, %z : f32
        tile.yield %w : f32
      } : !rows, !rows -> !rows
      %part = tile.reduce add %s : !acc -> !tile.fragment<[query 16], f32, partial>
      %rounded = tile.cast %s : !acc -> !lhs
      scf.yield %larger, %part, %rounded, %next : !rows, !tile.fragment<[query 16], f32, partial>, !lhs, !out
    }
    return
  }

  // Branches take the layout that reaches them first; the other branch converts. No user depends on the last
  // value's layout.
  // CHECK-LABEL: func.func @branch
  func.func @branch(%c: i1, %x: f32, %s: !acc, %st: !tile.fragment<[key 16, query 16], f32>) {
    // CHECK: scf.if {{.*}} -> (!tile.fragment<[query 16], f32, row>)
    %m = scf.if %c -> !rows {
      %a = tile.reduce add %s : !acc -> !rows
      scf.yield %a : !rows
    } else {
      // CHECK: tile.reduce add {{.*}} -> <[query 16], f32, col>
      // CHECK-NEXT: tile.convert {{.*}} -> <[query 16], f32, row>
      %b = tile.reduce add %st : !tile.fragment<[key 16, query 16], f32> -> !rows
      scf.yield %b : !rows
    }
    // CHECK: tile.splat {{.*}} -> <[key 24], f32, col>
    %free = tile.splat %x : f32 -> !tile.fragment<[key 24], f32>
    // A layout of the file stays; a conversion to the same layout is removed.
    // CHECK-NEXT: tile.splat {{.*}} -> <[query 16], f32, col>
    %given = tile.splat %x : f32 -> !tile.fragment<[query 16], f32, col>
    // CHECK-NEXT: return
    %same = tile.convert %given : !tile.fragment<[query 16], f32, col> -> !tile.fragment<[query 16], f32, col>
    return
  }
}
