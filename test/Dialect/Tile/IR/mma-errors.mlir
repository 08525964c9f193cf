// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%l: !tile.fragment<[query 16], bf16>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected a left operand with two axes, got '!tile.fragment<[query 16], bf16>'}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[query 16], bf16>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{a left operand in registers has no line to start at}}
  %0 = tile.mma %l at %i, %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.shared<query 16, feature 64, bf16, swizzled>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{a left operand in shared memory needs the line it starts at}}
  %0 = tile.mma %l , %r, %a : !tile.shared<query 16, feature 64, bf16, swizzled>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.shared<query 16, feature 64, bf16, swizzled>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 32, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected at most the 16 lines of the tile, got 32}}
  %0 = tile.mma %l at %i, %r, %a : !tile.shared<query 16, feature 64, bf16, swizzled>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 32, key 32], f32, acc> -> !tile.fragment<[query 32, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], f16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected operands of one type, f16 or bf16, and an accumulator of f32, got 'f16', 'bf16' and 'f32'}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[query 16, feature 64], f16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[key 16, query 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{operands share no axis to contract: 'query' is not in}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[key 16, query 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 128, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected 64 along 'feature', got 128}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 128, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 16], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected accumulator and result of [query 16, key 32], got '!tile.fragment<[query 16, key 16], f32, acc>'}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 16], f32, acc> -> !tile.fragment<[query 16, key 16], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 8, feature 64], bf16>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 8, key 32], f32>, %i: i32) {
  // expected-error @+1 {{expected multiples of 16 along all axes, got 8 x 32, contracted over 64}}
  %0 = tile.mma %l , %r, %a : !tile.fragment<[query 8, feature 64], bf16>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 8, key 32], f32> -> !tile.fragment<[query 8, key 32], f32>
  return
}

// -----

func.func @f(%l: i32, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = tile.mma %l , %r, %a : i32, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row>, %s: !tile.fragment<[query 16], f32, row>, %a: !tile.fragment<[query 32, feature 64], f32, acc>, %x: f32, %i: i32, %t: !tile.scratch<8448>) {
  // expected-error @+1 {{expected an accumulator of f32 with 16 rows and a multiple of 8 columns, or 8 columns and a multiple of 16 rows, got}}
  %0:3 = tile.merge_warps %m, %s, %a unit %x warps 2 warp %i scratch %t
    : !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 32, feature 64], f32, acc>, !tile.scratch<8448> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 32], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row>, %s: !tile.fragment<[query 16], f32, row>, %a: !tile.fragment<[query 16, feature 64], f32, acc>, %x: f32, %i: i32, %t: !tile.scratch<8448>) {
  // expected-error @+1 {{expected a merged accumulator with the axes of}}
  %0:3 = tile.merge_warps %m, %s, %a unit %x warps 2 warp %i scratch %t
    : !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 64], f32, acc>, !tile.scratch<8448> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row>, %s: !tile.fragment<[query 16], f32, row>, %a: !tile.fragment<[query 16, feature 64], f32, acc>, %x: f32, %i: i32, %t: !tile.scratch<8448>) {
  // expected-error @+1 {{expected 2 warps to cover 64 columns, got 16 for each}}
  %0:3 = tile.merge_warps %m, %s, %a unit %x warps 2 warp %i scratch %t
    : !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 64], f32, acc>, !tile.scratch<8448> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 16], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row, partial>, %s: !tile.fragment<[query 16], f32, row>, %a: !tile.fragment<[query 16, feature 64], f32, acc>, %x: f32, %i: i32, %t: !tile.scratch<8448>) {
  // expected-error @+1 {{expected max and sum to be complete, one f32 per row, got}}
  %0:3 = tile.merge_warps %m, %s, %a unit %x warps 2 warp %i scratch %t
    : !tile.fragment<[query 16], f32, row, partial>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 64], f32, acc>, !tile.scratch<8448> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 32], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row>, %s: !tile.fragment<[query 16], f32, row>, %a: !tile.fragment<[query 16, feature 64], f32, acc>, %x: f32, %i: i32, %t: !tile.scratch<8447>) {
  // expected-error @+1 {{expected 8448 bytes of scratch, got 8447}}
  %0:3 = tile.merge_warps %m, %s, %a unit %x warps 2 warp %i scratch %t
    : !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 64], f32, acc>, !tile.scratch<8447> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16, feature 32], f32, acc>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 8], f32, col>, %i: i32, %t: !tile.scratch<128>) {
  // expected-error @+1 {{expected complete numbers of f32, one of each of 16 rows, got}}
  %0 = tile.reduce_warps max %m warps 2 warp %i scratch %t : !tile.fragment<[query 8], f32, col>, !tile.scratch<128> -> !tile.fragment<[query 8], f32, col>
  return
}

// -----

func.func @f(%m: !tile.fragment<[query 16], f32, row>, %i: i32, %t: !tile.scratch<124>) {
  // expected-error @+1 {{expected 128 bytes of scratch, got 124}}
  %0 = tile.reduce_warps max %m warps 2 warp %i scratch %t : !tile.fragment<[query 16], f32, row>, !tile.scratch<124> -> !tile.fragment<[query 16], f32, row>
  return
}

// -----

func.func @column(%p: !tile.fragment<[query 16, key 32], bf16>, %k: !tile.shared<key 32, feature 576, bf16>,
                  %from: i32, %o: !tile.fragment<[query 16, feature 96], f32>) {
  // expected-error @+1 {{expected a part of the columns of a shared tile in whole panels of 64, got 96 of '!tile.shared<key 32, feature 576, bf16>'}}
  %0 = tile.mma %p, %k from %from, %o : !tile.fragment<[query 16, key 32], bf16>, !tile.shared<key 32, feature 576, bf16>, !tile.fragment<[query 16, feature 96], f32> -> !tile.fragment<[query 16, feature 96], f32>
  return
}

// -----

func.func @contracted(%q: !tile.fragment<[query 16, feature 64], bf16>, %k: !tile.shared<key 64, feature 64, bf16>,
                      %from: i32, %s: !tile.fragment<[query 16, key 64], f32>) {
  // expected-error @+1 {{expected a part of the columns of a shared tile in whole panels of 64, got 64}}
  %0 = tile.mma %q, %k from %from, %s : !tile.fragment<[query 16, feature 64], bf16>, !tile.shared<key 64, feature 64, bf16>, !tile.fragment<[query 16, key 64], f32> -> !tile.fragment<[query 16, key 64], f32>
  return
}
