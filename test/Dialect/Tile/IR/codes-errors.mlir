// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected tile and fragment of one quantized type, of 8 bits or less, got '!tile.shared<key 16, feature 64, bf16>' and}}
  %0 = tile.load_rhs %k : <key 16, feature 64, bf16> -> <[key 16, feature 64], bf16>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f8E4M3FN>) {
  // expected-error @+1 {{expected all of '!tile.shared<key 16, feature 64, f8E4M3FN>' or, where they are kept, its first columns, multiples of 16 along both axes, got}}
  %0 = tile.load_rhs %k : <key 16, feature 64, f8E4M3FN> -> <[key 8, feature 64], f8E4M3FN>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f8E4M3FN>) {
  // expected-error @+1 {{or, where they are kept, its first columns}}
  %0 = tile.load_rhs %k : <key 16, feature 64, f8E4M3FN> -> <[key 16, feature 32], f8E4M3FN>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 576, f8E4M3FN>, %i: i32) {
  // expected-error @+1 {{expected panels of 128 bytes, or the last ones of '!tile.shared<key 16, feature 576, f8E4M3FN>', got '!tile.shared<key 16, feature 96, f8E4M3FN>'}}
  %0 = tile.panels %k from %i : <key 16, feature 576, f8E4M3FN> -> <key 16, feature 96, f8E4M3FN>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 576, f8E4M3FN>, %i: i32) {
  // expected-error @+1 {{expected columns of all lines of '!tile.shared<key 16, feature 576, f8E4M3FN>', got}}
  %0 = tile.panels %k from %i : <key 16, feature 576, f8E4M3FN> -> <key 16, feature 128, i8>
  return
}

// -----

func.func @f(%k: !tile.shared<key 32, feature 256, f8E4M3FN, boxes 16>, %i: i32) {
  // expected-error @+1 {{expected tiles in one piece, got}}
  %0 = tile.panels %k from %i : <key 32, feature 256, f8E4M3FN, boxes 16> -> <key 32, feature 128, f8E4M3FN>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 576, f8E4M3FN, swizzled>, %i: i32) {
  // expected-error @+1 {{expected both tiles swizzled, or neither, got}}
  %0 = tile.panels %k from %i : <key 16, feature 576, f8E4M3FN, swizzled> -> <key 16, feature 128, f8E4M3FN>
  return
}

// -----

func.func @f(%q: !tile.shared<query 32, feature 64, bf16>, %m: !tile.scratch<8>, %c: i1) {
  // expected-error @+1 {{expected 16 lines of bf16 or f16 in one piece, of a multiple of 32 columns, got '!tile.shared<query 32, feature 64, bf16>'}}
  %0, %1 = tile.narrow_tile %q by %m if %c : <query 32, feature 64, bf16>, <8> -> <4096>
  return
}

// -----

func.func @f(%q: !tile.shared<query 16, feature 64, bf16>, %m: !tile.scratch<8>, %c: i1) {
  // expected-error @+1 {{expected the 2048 bytes of the tile, got '!tile.scratch<1024>'}}
  %0, %1 = tile.narrow_tile %q by %m if %c : <query 16, feature 64, bf16>, <8> -> <1024>
  return
}

// -----

func.func @f(%q: !tile.scratch<2048>) {
  // expected-error @+1 {{expected 16 queries of f16 in layout 'lhs', got '!tile.fragment<[query 16, feature 64], bf16>'}}
  %0 = tile.load_lhs %q from 0 : <2048> -> <[query 16, feature 64], bf16>
  return
}

// -----

func.func @f(%q: !tile.scratch<2048>) {
  // expected-error @+1 {{expected columns from a multiple of 64 on, within '!tile.scratch<2048>', got 64 from 64 on}}
  %0 = tile.load_lhs %q from 64 : <2048> -> <[query 16, feature 64], f16, lhs, runs 64>
  return
}

// -----

func.func @f(%a: !tile.fragment<[query 16, feature 128], f32>, %b: !tile.fragment<[query 16, feature 64], f32>) {
  // expected-error @+1 {{expected accumulators of one type, got}}
  %0 = tile.join %a, %b : !tile.fragment<[query 16, feature 128], f32>, !tile.fragment<[query 16, feature 64], f32> -> <[query 16, feature 192], f32>
  return
}

// -----

func.func @f(%a: !tile.fragment<[query 16, feature 128], f32>) {
  // expected-error @+1 {{expected the columns of 2 times '!tile.fragment<[query 16, feature 128], f32>', got '!tile.fragment<[query 16, feature 192], f32>'}}
  %0 = tile.join %a, %a : !tile.fragment<[query 16, feature 128], f32>, !tile.fragment<[query 16, feature 128], f32> -> <[query 16, feature 192], f32>
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

!codes = !tile.fragment<[key 16, feature 64], f4E2M1FN>
func.func @f(%c: !codes, %w: !tile.fragment<[key 16], i32>) {
  // expected-error @+1 {{expected a word for four of 8 blocks, got 1}}
  %0 = tile.widen %c blocks <8 of 16, f8E4M3FN> by %w : !codes by !tile.fragment<[key 16], i32> -> <[key 16, feature 64], f16>
  return
}

// -----

!codes = !tile.fragment<[key 16, feature 64], f4E2M1FN>
func.func @f(%c: !codes, %w: !tile.fragment<[key 16], i32>) {
  // expected-error @+1 {{expected the largest exponent beside powers of two, and these where features are kept}}
  %0 = tile.widen %c blocks <2 of 32, f8E8M0FNU> by %w : !codes by !tile.fragment<[key 16], i32> -> <[key 16, feature 64], f16>
  return
}

// -----

!codes = !tile.fragment<[key 16, feature 64], f4E2M1FN>
func.func @f(%c: !codes, %w: !tile.fragment<[key 16], f32>) {
  // expected-error @+1 {{expected an i32 for each token, got '!tile.fragment<[key 16], f32>'}}
  %0 = tile.widen %c blocks <4 of 16, f8E4M3FN> by %w : !codes by !tile.fragment<[key 16], f32> -> <[key 16, feature 64], f16>
  return
}

// -----

!codes = !tile.fragment<[key 16, feature 64], i8>
func.func @f(%c: !codes, %w: !tile.fragment<[key 16], i32>) {
  // expected-error @+1 {{expected blocks of floats along features, without other factors, got}}
  %0 = tile.widen %c blocks <4 of 16, f8E4M3FN> by %w : !codes by !tile.fragment<[key 16], i32> -> <[key 16, feature 64], f16>
  return
}

// -----

!codes = !tile.fragment<[key 16, feature 64], f4E2M1FN>
func.func @f(%c: !codes, %w: !tile.fragment<[key 16], i32>) {
  // expected-error @+1 {{expected blocks of a power of two of features, 16 or more, got 4 of 12}}
  %0 = tile.widen %c blocks <4 of 12, f8E4M3FN> by %w : !codes by !tile.fragment<[key 16], i32> -> <[key 16, feature 64], f16>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], f8E4M3>) {
  // expected-error @+1 {{expected f8E4M3FN, f8E5M2, f4E2M1FN, i8, i4 or i2 to become f16 or bf16, got}}
  %0 = tile.widen %c : <[key 16, feature 64], f8E4M3> -> <[key 16, feature 64], bf16>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], f8E4M3FN>) {
  // expected-error @+1 {{expected f8E4M3FN, f8E5M2, f4E2M1FN, i8, i4 or i2 to become f16 or bf16, got}}
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
  %0 = tile.mma %q, %c, %s : !tile.fragment<[query 16, feature 64], bf16>, !codes, !tile.fragment<[query 16, key 16], f32> -> !tile.fragment<[query 16, key 16], f32>
  return
}

// -----

!wide = !tile.fragment<[feature 64, key 16], bf16>
func.func @f(%q: !tile.fragment<[query 16, feature 64], bf16>, %c: !wide, %s: !tile.fragment<[query 16, key 16], f32>) {
  // expected-error @+1 {{expected a right operand of two axes, 'feature' the second, got '!tile.fragment<[feature 64, key 16], bf16>'}}
  %0 = tile.mma %q, %c, %s : !tile.fragment<[query 16, feature 64], bf16>, !wide, !tile.fragment<[query 16, key 16], f32> -> !tile.fragment<[query 16, key 16], f32>
  return
}

// -----

func.func @f(%c: !tile.fragment<[key 16, feature 64], bf16, lhs>) {
  // expected-error @+1 {{moves no elements of layout 'rhs': right operands come from memory; got}}
  %0 = tile.convert %c : <[key 16, feature 64], bf16, lhs> -> <[key 16, feature 64], bf16, rhs>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, i4>) {
  // expected-error @+1 {{expected groups of a multiple of 16 that divides the tile's 64 features, got 48}}
  %0 = tile.load_rhs %k per 48 : <key 16, feature 64, i4> -> <[key 16, feature 64], i4>
  return
}

// -----

func.func @f(%c: !tile.fragment<[feature 64, key 16], i4>, %s: !tile.fragment<[key 16], bf16>) {
  // expected-error @+1 {{expected factors and terms of columns, in the result's element type, got}}
  %0 = tile.widen %c times %s : <[feature 64, key 16], i4> times !tile.fragment<[key 16], bf16> -> <[feature 64, key 16], f16>
  return
}

// -----

func.func @f(%c: !tile.fragment<[feature 64, key 16], i4>, %s: !tile.fragment<[key 16], f16>) {
  // expected-error @+1 {{expected as many terms as factors, 1, got 2}}
  %0 = tile.widen %c times %s plus %s, %s : <[feature 64, key 16], i4> times !tile.fragment<[key 16], f16> plus !tile.fragment<[key 16], f16>, !tile.fragment<[key 16], f16> -> <[feature 64, key 16], f16>
  return
}

// -----

func.func @f(%c: !tile.fragment<[feature 64, key 16], i4>) {
  // expected-error @+1 {{expected tiny elements of e2m1, or of integers to f16 without factors, got}}
  %0 = tile.widen tiny %c : <[feature 64, key 16], i4> -> <[feature 64, key 16], bf16>
  return
}

// -----

func.func @f(%m: !tile.shared<key 16, feature 2, f16>) {
  // expected-error @+1 {{expected as many results as '!tile.shared<key 16, feature 2, f16>' has columns, got 1}}
  %0 = tile.load_columns %m : !tile.shared<key 16, feature 2, f16> -> !tile.fragment<[key 16], f16>
  return
}

// -----

func.func @f(%m: !tile.shared<key 16, feature 16, f16>) {
  // expected-error @+1 {{expected a tile with lines of 4, 8 or 16 bytes of f16, bf16, f32 or i32, got}}
  %0 = tile.load_columns %m : !tile.shared<key 16, feature 16, f16> -> !tile.fragment<[key 16], f16>
  return
}

// -----

func.func @f(%q: !tile.fragment<[query 16, feature 64], f16>) {
  // expected-error @+1 {{expected blocks of 16 of the 64 columns, got 32 from 40 on}}
  %0 = tile.part %q from 40 : <[query 16, feature 64], f16> -> <[query 16, feature 32], f16>
  return
}

// -----

func.func @f(%q: !tile.fragment<[query 16, feature 64], f32>) {
  // expected-error @+1 {{expected queries of bf16 or f16 and the same of f16, got}}
  %0, %1 = tile.narrow %q : <[query 16, feature 64], f32> -> <[query 16, feature 64], f16>
  return
}

// -----

func.func @f(%q: !tile.fragment<[query 16, feature 64], f16>) {
  // expected-error @+1 {{expected quantized elements of i8, i4 or i2, got 'f8E4M3FN'}}
  %0 = tile.balance %q for f8E4M3FN : <[query 16, feature 64], f16> -> <[query 16, feature 64], f16>
  return
}

// -----

func.func @f(%q: !tile.fragment<[query 16, feature 64], bf16>) {
  // expected-error @+1 {{expected queries of f16, and the same as result, got}}
  %0 = tile.balance %q for i4 : <[query 16, feature 64], bf16> -> <[query 16, feature 64], bf16>
  return
}

// -----

!rhs = !tile.fragment<[key 16, feature 64], f16, rhs, runs 64 by 4>
!acc = !tile.fragment<[query 16, key 16], f32, acc>
func.func @f(%q: !tile.fragment<[query 16, feature 64], f16, lhs, runs 64>, %k: !rhs, %s: !acc) {
  // expected-error @+1 {{expected features in the order of the right operand, '!tile.fragment<[key 16, feature 64], f16, rhs, runs 64 by 4>', got}}
  %0 = tile.mma %q, %k, %s : !tile.fragment<[query 16, feature 64], f16, lhs, runs 64>, !rhs, !acc -> !acc
  return
}

// -----

// expected-error @+1 {{expected runs of a power of two of features, 16 to 1024, got 48}}
func.func private @f(!tile.fragment<[query 16, feature 96], f16, lhs, runs 48>)

// -----

// expected-error @+1 {{expected a step of 4 or 8, of features that are contracted, got 4}}
func.func private @f(!tile.fragment<[query 16, feature 64], f32, acc, runs 64 by 4>)

// -----

// expected-error @+1 {{expected longer runs of 'i2' than spans of 32 make}}
func.func private @f(!tile.fragment<[key 16, feature 32], i2, rhs, runs 32 by 8>)

// -----

// expected-error @+1 {{expected runs of features of a right operand or of an accumulator, or of the columns of a left operand}}
func.func private @f(!tile.fragment<[query 16, key 64], f32, acc, runs 64>)

// -----

// expected-error @+1 {{expected lines of whole bytes, got 3 elements of 'i4'}}
func.func private @f(!tile.shared<key 16, feature 3, i4>)

// -----

func.func @f(%a: !tile.fragment<[query 16, feature 64], f32>) {
  // expected-error @+1 {{expected an accumulator of f32, features its rows, and the same as result, got}}
  %0 = tile.restore %a of i4 : <[query 16, feature 64], f32> -> <[query 16, feature 64], f32>
  return
}

// -----

func.func @f(%a: !tile.fragment<[feature 64, query 8], f32>) {
  // expected-error @+1 {{expected quantized elements of i8, i4 or i2, got 'f8E4M3FN'}}
  %0 = tile.restore %a of f8E4M3FN : <[feature 64, query 8], f32> -> <[feature 64, query 8], f32>
  return
}

// -----

func.func @f(%k: !tile.shared<key 16, feature 64, f16>, %q: !tile.fragment<[query 8, feature 64], f16>, %i: i32,
             %s: !tile.fragment<[key 16, query 8], f32>) {
  // expected-error @+1 {{with a result of 8 columns takes operands in registers}}
  %0 = tile.mma %k at %i, %q, %s : !tile.shared<key 16, feature 64, f16>, !tile.fragment<[query 8, feature 64], f16>, <[key 16, query 8], f32> -> <[key 16, query 8], f32>
  return
}

// -----

!codes = !tile.fragment<[feature 64, key 16], f16, rhs, runs 64>
!weights = !tile.fragment<[query 8, key 16], f16, rhs>
!acc = !tile.fragment<[feature 64, query 8], f32, acc>
func.func @f(%v: !codes, %p: !weights, %a: !acc) {
  // expected-error @+1 {{expected features in the order of the left operand, '!tile.fragment<[feature 64, key 16], f16, rhs, runs 64>', got}}
  %0 = tile.mma %v, %p, %a : !codes, !weights, !acc -> !acc
  return
}

// -----

func.func @f(%s: !tile.fragment<[key 16, query 8], f32>) {
  // expected-error @+1 {{expected source and result of the same axes, got}}
  %0 = tile.cast %s : <[key 16, query 8], f32> -> <[query 16, key 16], f16>
  return
}
