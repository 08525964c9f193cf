// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%q: !tile.shared<query 16, feature 64, bf16, swizzled>, %i: i32) {
  // expected-error @+1 {{expected tile and fragment of one element type of 8, 16 or 32 bits, got}}
  %0 = tile.load %q at %i : <query 16, feature 64, bf16, swizzled> -> <[query 16, feature 64], f16, lhs>
  return
}

// -----

func.func @f(%q: !tile.shared<query 16, feature 64, bf16, swizzled>, %i: i32) {
  // expected-error @+1 {{expected whole lines, a multiple of 16 of them, of '!tile.shared<query 16, feature 64, bf16, swizzled>', got}}
  %0 = tile.load %q at %i : <query 16, feature 64, bf16, swizzled> -> <[query 32, feature 64], bf16, lhs>
  return
}

// -----

func.func @f(%q: !tile.shared<query 16, feature 64, bf16, swizzled>, %i: i32) {
  // expected-error @+1 {{expected layout 'lhs', got}}
  %0 = tile.load %q at %i : <query 16, feature 64, bf16, swizzled> -> <[query 16, feature 64], bf16, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row, partial>) {
  // expected-error @+1 {{moves complete elements only, got '!tile.fragment<[query 16], f32, row, partial>' and}}
  %0 = tile.convert %s : <[query 16], f32, row, partial> -> <[query 16], f32, col>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected one element type of 8, 16 or 32 bits, got '!tile.fragment<[query 16], f32, row>' and '!tile.fragment<[query 16], f16, col>'}}
  %0 = tile.convert %s : <[query 16], f32, row> -> <[query 16], f16, col>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], i64, row>) {
  // expected-error @+1 {{expected one element type of 8, 16 or 32 bits, got}}
  %0 = tile.convert %s : <[query 16], i64, row> -> <[query 16], i64, col>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected source and result of the same axes, got}}
  %0 = tile.convert %s : <[query 16, key 32], f32, acc> -> <[key 16, query 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected source and result of the same axes, got}}
  %0 = tile.convert %s : <[query 16, key 32], f32, acc> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected a left operand of f16 or bf16, got}}
  %0 = tile.cast %s : <[query 16, key 32], f32, acc> -> <[query 16, key 32], i32, lhs>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected source and result of the same axes, got}}
  %0 = tile.cast %s : <[query 16, key 32], f32, acc> -> <[query 16, key 16], bf16, lhs>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 8], f32>) {
  // expected-error @+1 {{expected multiples of 16 along both axes, got}}
  %0 = tile.cast %s : <[query 16, key 8], f32> -> <[query 16, key 8], bf16>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32>) {
  // expected-error @+1 {{expected an accumulator of f32 with two axes, got}}
  %0 = tile.cast %s : <[query 16], f32> -> <[query 16], bf16>
  return
}
