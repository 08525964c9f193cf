// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected tile and fragment of one type of 8 bits, got '!tile.shared<key 16, feature 64, bf16>' and}}
  %0 = tile.load_rhs %k : <key 16, feature 64, bf16> -> <[key 16, feature 64], bf16>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f8E4M3FN>) {
  // expected-error @+1 {{expected all of '!tile.shared<key 16, feature 64, f8E4M3FN>', multiples of 16 along both axes, got}}
  %0 = tile.load_rhs %k : <key 16, feature 64, f8E4M3FN> -> <[key 8, feature 64], f8E4M3FN>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f8E4M3FN>) {
  // expected-error @+1 {{expected layout 'rhs', got}}
  %0 = tile.load_rhs %k : <key 16, feature 64, f8E4M3FN> -> <[key 16, feature 64], f8E4M3FN, lhs>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f8E4M3FN, boxes 16>) {
  // expected-error @+1 {{cannot read a tile cut into boxes}}
  %0 = tile.load_rhs %k : <key 16, feature 64, f8E4M3FN, boxes 16> -> <[key 16, feature 64], f8E4M3FN>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], f8E5M2>) {
  // expected-error @+1 {{expected f8E4M3FN to become f16 or bf16, got}}
  %0 = tile.widen %c : <[key 16, feature 64], f8E5M2> -> <[key 16, feature 64], bf16>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], f8E4M3FN>) {
  // expected-error @+1 {{expected f8E4M3FN to become f16 or bf16, got}}
  %0 = tile.widen %c : <[key 16, feature 64], f8E4M3FN> -> <[key 16, feature 64], f32>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], f8E4M3FN>) {
  // expected-error @+1 {{expected right operands of the same axes, got}}
  %0 = tile.widen %c : <[key 16, feature 64], f8E4M3FN> -> <[feature 64, key 16], bf16>
  return
}

// -----

!codes = !tile.fragment<[key 16, feature 64], f8E4M3FN>
func.func @f(%q: !tile.fragment<[query 16, feature 64], bf16>, %c: !codes, %s: !tile.fragment<[query 16, key 16], f32>) {
  // expected-error @+1 {{expected operands of one type, f16 or bf16, and an accumulator of f32, got 'bf16', 'f8E4M3FN' and 'f32'}}
  %0 = tile.dot %q, %c, %s : !tile.fragment<[query 16, feature 64], bf16>, !codes, !tile.fragment<[query 16, key 16], f32> -> !tile.fragment<[query 16, key 16], f32>
  return
}

// -----

!wide = !tile.fragment<[feature 64, key 16], bf16>
func.func @f(%q: !tile.fragment<[query 16, feature 64], bf16>, %c: !wide, %s: !tile.fragment<[query 16, key 16], f32>) {
  // expected-error @+1 {{expected a right operand of two axes, 'feature' the second, got '!tile.fragment<[feature 64, key 16], bf16>'}}
  %0 = tile.dot %q, %c, %s : !tile.fragment<[query 16, feature 64], bf16>, !wide, !tile.fragment<[query 16, key 16], f32> -> !tile.fragment<[query 16, key 16], f32>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], bf16, lhs>) {
  // expected-error @+1 {{moves no elements of layout 'rhs': right operands come from memory; got}}
  %0 = tile.convert %c : <[key 16, feature 64], bf16, lhs> -> <[key 16, feature 64], bf16, rhs>
  return
}
