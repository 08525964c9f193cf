// RUN: attn-opt %s -split-input-file -verify-diagnostics

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @early(%q: !q, %k: !k, %i: i32) -> !s {
  // expected-error @+1 {{result is used before tile.wait_mmas}}
  %0 = tile.start_mma %q at %i, %k : !q, !k -> !s
  // expected-note @+1 {{used here}}
  return %0 : !s
}

// -----

// A branch may start an MMA that is finished after it.
!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @branch(%q: !q, %k: !k, %i: i32, %c: i1) -> !s {
  %none = tile.undefined : !s
  %0 = scf.if %c -> !s {
    %1 = tile.start_mma %q at %i, %k : !q, !k -> !s
    scf.yield %1 : !s
  } else {
    scf.yield %none : !s
  }
  %2 = tile.wait_mmas 0 of %0 : !s -> !s
  return %2 : !s
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @behind_branch(%q: !q, %k: !k, %i: i32, %c: i1) -> !s {
  %none = tile.undefined : !s
  %0 = scf.if %c -> !s {
    // expected-error @+1 {{result is used before tile.wait_mmas}}
    %1 = tile.start_mma %q at %i, %k : !q, !k -> !s
    scf.yield %1 : !s
  } else {
    scf.yield %none : !s
  }
  // expected-note @+1 {{used here}}
  return %0 : !s
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @over_iterations(%q: !q, %k: !k, %i: i32) -> !s {
  %none = tile.undefined : !s
  %0 = scf.for %t = %i to %i step %i iter_args(%last = %none) -> !s : i32 {
    // expected-error @+1 {{result is used before tile.wait_mmas}}
    %1 = tile.start_mma %q at %i, %k : !q, !k -> !s
    // expected-note @+1 {{used here}}
    scf.yield %1 : !s
  }
  %2 = tile.wait_mmas 0 of %0 : !s -> !s
  return %2 : !s
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @line(%q: !q, %k: !k) {
  // expected-error @+1 {{a left operand in shared memory needs the line it starts at}}
  %0 = tile.start_mma %q, %k : !q, !k -> !s
  return
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 128, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @depth(%q: !q, %k: !k, %i: i32) {
  // expected-error @+1 {{expected 64 along 'feature' of}}
  %0 = tile.start_mma %q at %i, %k : !q, !k -> !s
  return
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 16], f32, acc>
func.func @width(%q: !q, %k: !k, %i: i32) {
  // expected-error @+1 {{expected a result of 16 rows per warp and 32 columns, got}}
  %0 = tile.start_mma %q at %i, %k : !q, !k -> !s
  return
}

// -----

func.func @wgmma(%d: i64) {
  // expected-error @+1 {{expected n a multiple of 8 from 8 to 256, got 12}}
  %0:6 = tile.wgmma 12 bf16 lhs_descriptor %d rhs_descriptor %d : f32, f32, f32, f32, f32, f32
  return
}

// -----

func.func @lhs(%d: i64) {
  // expected-error @+1 {{expected four registers or a descriptor on the left, got 0 registers}}
  %0:4 = tile.wgmma 8 bf16 rhs_descriptor %d : f32, f32, f32, f32
  return
}

// -----

func.func @f(%b: !tile.barriers<2>) {
  // expected-error @+1 {{expected a count for each of the barriers (1), got 2}}
  tile.init_barriers %b counts [1, 8] : !tile.barriers<2>
  return
}

// -----

!ds = !tile.shared<key 32, query 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, feature 64], f32, acc>
func.func @turned(%ds: !ds, %k: !k, %i: i32) {
  // expected-error @+1 {{expected a transposed left operand to have no line and 64 columns in one piece}}
  %0 = tile.start_mma %ds at %i, %k : !ds, !k -> !s
  return
}

// -----

!ds = !tile.shared<key 32, query 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 96, bf16, swizzled>
!s = !tile.fragment<[query 16, feature 48], f32, acc>
func.func @part(%ds: !ds, %k: !k, %i: i32) {
  // expected-error @+1 {{expected a part of the columns of a tile in whole panels of 64, got 48}}
  %0 = tile.start_mma %ds, %k from %i : !ds, !k -> !s
  return
}

// -----

!codes = !tile.shared<key 64, feature 128, i4>
!wide = !tile.shared<key 64, feature 64, f16>
func.func @widened_features(%codes: !codes, %wide: !wide) {
  // expected-error @+1 {{expected a target with the lines and columns of '!tile.shared<key 64, feature 128, i4>', got '!tile.shared<key 64, feature 64, f16>'}}
  tile.widen_tile %codes into %wide : !codes -> !wide
  return
}

// -----

!codes = !tile.shared<key 64, feature 128, f4E2M1FN>
!wide = !tile.shared<key 64, feature 128, f16>
func.func @widened_codes(%codes: !codes, %wide: !wide) {
  // expected-error @+1 {{expected integers of 8, 4 or 2 bits, e4m3 or e5m2 that become f16, got '!tile.shared<key 64, feature 128, f4E2M1FN>'}}
  tile.widen_tile %codes into %wide : !codes -> !wide
  return
}

// -----

!codes = !tile.shared<key 64, feature 96, i8>
!wide = !tile.shared<key 64, feature 96, f16>
func.func @widened_lines(%codes: !codes, %wide: !wide) {
  // expected-error @+1 {{expected a multiple of 8 lines, of 64 or 128 features, got '!tile.shared<key 64, feature 96, i8>'}}
  tile.widen_tile %codes into %wide : !codes -> !wide
  return
}

// -----

!codes = !tile.shared<key 64, feature 128, f8E4M3FN>
!meta = !tile.shared<key 64, feature 2, f16>
!wide = !tile.shared<key 64, feature 128, f16>
func.func @widened_floats(%codes: !codes, %meta: !meta, %wide: !wide) {
  // expected-error @+1 {{expected scales and zeros of integers alone, got '!tile.shared<key 64, feature 128, f8E4M3FN>'}}
  tile.widen_tile %codes by %meta into %wide : !codes by !meta -> !wide
  return
}

// -----

!codes = !tile.shared<key 64, feature 128, i8>
!meta = !tile.shared<key 32, feature 2, f16>
!wide = !tile.shared<key 64, feature 128, f16>
func.func @widened_by_fewer(%codes: !codes, %meta: !meta, %wide: !wide) {
  // expected-error @+1 {{expected a scale and a zero of f16 for 1, 2 or 4 groups of features of each of 64 lines, got '!tile.shared<key 32, feature 2, f16>'}}
  tile.widen_tile %codes by %meta into %wide : !codes by !meta -> !wide
  return
}

// -----

!wide = !tile.shared<key 64, feature 64, f32>
func.func @widened_to(%held: vector<4xi32>, %wide: !wide) {
  // expected-error @+1 {{expected e4m3 that becomes f16 or bf16, got 'f8E4M3FN' and '!tile.shared<key 64, feature 64, f32>'}}
  tile.widen_lines %held of f8E4M3FN into %wide : vector<4xi32> -> !wide
  return
}

// -----

!wide = !tile.shared<key 64, feature 96, bf16>
func.func @widened_panels(%held: vector<4xi32>, %wide: !wide) {
  // expected-error @+1 {{expected a multiple of 8 lines, of a multiple of 64 features, got '!tile.shared<key 64, feature 96, bf16>'}}
  tile.widen_lines %held of f8E4M3FN into %wide : vector<4xi32> -> !wide
  return
}

// -----

!wide = !tile.shared<key 64, feature 64, bf16>
func.func @widened_in_part(%held: vector<4xi32>, %wide: !wide) {
  // expected-error @+1 {{expected some warps to hold the 4096 values of '!tile.shared<key 64, feature 64, bf16>', 512 in each register vector, got 3 of them}}
  tile.widen_lines %held, %held, %held of f8E4M3FN into %wide : vector<4xi32>, vector<4xi32>, vector<4xi32> -> !wide
  return
}

// -----

!meta = !tile.shared<key 64, feature 4, f16>
!wide = !tile.shared<key 64, feature 4, f32>
func.func @widened_groups(%meta: !meta, %wide: !wide) {
  // expected-error @+1 {{expected a scale and a zero of f16 for all features of each of 64 lines, got '!tile.shared<key 64, feature 4, f16>'}}
  tile.widen_tile %meta into %wide : !meta -> !wide
  return
}

// -----

!meta = !tile.shared<key 64, feature 2, f16>
!wide = !tile.shared<key 64, feature 2, f32>
func.func @widened_meta_by_meta(%meta: !meta, %wide: !wide) {
  // expected-error @+1 {{expected no factors of metadata, got '!tile.shared<key 64, feature 2, f16>'}}
  tile.widen_tile %meta by %meta into %wide : !meta by !meta -> !wide
  return
}
