// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%b: !tile.buffer<i32>, %i: i64) {
  // expected-error @+1 {{expected an element of the buffer, 'i32', got 'f32'}}
  %0 = tile.read %b[%i] : <i32> -> f32
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %i: i64, %x: i32) {
  // expected-error @+1 {{expected 'bf16' or an f32 that is rounded to it, got 'i32'}}
  tile.write %x to %b[%i] : i32 -> <bf16>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %i: i32) {
  // expected-error @+1 {{expected a buffer of i32, got '!tile.buffer<f32>'}}
  %0 = tile.record %b[%i] : <f32> -> i32
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected 1 to 32 fields, got 33}}
  %0:33 = tile.record %b[%i] : <i32> -> i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %i: i32) {
  // expected-error @+1 {{expected a table of i32, got '!tile.buffer<f32>'}}
  %0 = tile.paged_slot %b[%i, %i] columns %i page 16 : <f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected the page to hold a power of two from 1 to 256 tokens, got 24}}
  %0 = tile.paged_slot %b[%i, %i] columns %i page 24 : <i32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{result #0 must be shared memory, but got 'i32'}}
  %0 = tile.alloc : i32
  return
}

// -----

func.func @f(%r: !tile.ring<2, <key 16, feature 64, bf16>>, %i: i32) {
  // expected-error @+1 {{expected the ring's tile, '!tile.shared<key 16, feature 64, bf16>', got '!tile.shared<key 32, feature 64, bf16>'}}
  %0 = tile.ring_stage %r[%i] : <2, <key 16, feature 64, bf16>> -> <key 32, feature 64, bf16>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{attribute 'pending' failed to satisfy constraint}}
  tile.wait -1
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected as many sources, origins and strides as targets (1), got 2, 1 and 1}}
  tile.gather warp %i to %i from %b, %b origins %z strides [64] into %k (%line: i32) {
    %slot = arith.constant 0 : i32
    tile.yield %slot : i32
  } : !tile.buffer<bf16>, !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<f16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected the element type of source and target to agree, got '!tile.buffer<f16>' and '!tile.shared<key 16, feature 64, bf16>'}}
  tile.gather warp %i to %i from %b origins %z strides [64] into %k (%line: i32) {
    %slot = arith.constant 0 : i32
    tile.yield %slot : i32
  } : !tile.buffer<f16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>, %l: !tile.shared<key 32, feature 64, bf16>) {
  // expected-error @+1 {{expected all targets to have 16 lines, got 32}}
  tile.gather warp %i to %i from %b, %b origins %z, %z strides [64, 64] into %k, %l (%line: i32) {
    %slot = arith.constant 0 : i32
    tile.yield %slot : i32
  } : !tile.buffer<bf16>, !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>, !tile.shared<key 32, feature 64, bf16>
  return
}

// -----

func.func @features(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected features in chunks of 8, at most the 64 of a line, got 60}}
  tile.gather warp %i to %i at %i from %b origins %z strides [64] features [60] into %k : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @features(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected features in chunks of 8, at most the 64 of a line, got 72}}
  tile.gather warp %i to %i at %i from %b origins %z strides [72] features [72] into %k : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @features(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected the features of 1 sources, got 2}}
  tile.gather warp %i to %i at %i from %b origins %z strides [64] features [56, 56] into %k : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected a stride of at least a line's 64 elements, got 32}}
  tile.gather warp %i to %i from %b origins %z strides [32] into %k (%line: i32) {
    %slot = arith.constant 0 : i32
    tile.yield %slot : i32
  } : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected a region of ('i32'), got ('i64')}}
  tile.gather warp %i to %i from %b origins %z strides [64] into %k (%line: i64) {
    %slot = arith.constant 0 : i32
    tile.yield %slot : i32
  } : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected the region to yield 'i32', got 'i64'}}
  tile.gather warp %i to %i from %b origins %z strides [64] into %k (%line: i32) {
    %slot = arith.constant 0 : i64
    tile.yield %slot : i64
  } : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected slots from a lookup or a region that computes them, got neither}}
  tile.gather warp %i to %i from %b origins %z strides [64] into %k : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32, %z: i64, %b: !tile.buffer<bf16>, %k: !tile.shared<key 16, feature 64, bf16>) {
  // expected-error @+1 {{expected slots from a lookup or a region that computes them, got both}}
  tile.gather warp %i to %i at %i from %b origins %z strides [64] into %k (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile.shared<key 16, feature 64, bf16>
  return
}

// -----

func.func @f(%i: i32) {
  // expected-error @+1 {{expected the region to yield 'i32', got 'i64'}}
  %0 = tile.lookup warp %i to %i lines 16 (%line: i32) {
    %slot = arith.constant 0 : i64
    tile.yield %slot : i64
  }
  return
}

// -----

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

func.func @f(%x: i32) {
  // expected-error @+1 {{expected a scalar of 'f32', got 'i32'}}
  %0 = tile.splat %x : i32 -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error @+1 {{expected elements of f16 or bf16 in layout 'lhs' or 'rhs', got}}
  %0 = tile.splat %x : f32 -> <[query 16, key 16], f32, lhs>
  return
}

// -----

func.func @f(%i: i32) {
  // expected-error @+1 {{expected one axis of i32, got '!tile.fragment<[query 16], f32, row>'}}
  %0 = tile.coordinates %i : <[query 16], f32, row>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, feature 64], f32, acc>) {
  // expected-error @+1 {{input has axis 'feature', which the result lacks}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 32], f32, row>) {
  // expected-error @+1 {{expected the extents along 'query' to agree}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 32], f32, row> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[key 16, query 16], f32>) {
  // expected-error @+1 {{expected the axes in the result's order, got}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[key 16, query 16], f32> -> !tile.fragment<[query 16, key 16], f32>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, col>) {
  // expected-error @+1 {{expected an input of layout 'row', got}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16], f32, col> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[key 32], f32, row>) {
  // expected-error @+1 {{expected an input of layout 'col', got}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[key 32], f32, row> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], bf16, lhs>) {
  // expected-error @+1 {{has no scalars in a fragment of layout 'lhs'}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16, key 32], bf16, lhs> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected a region of ('f32'), got ('f32', 'f32')}}
  %0 = tile.map %s (%x: f32, %y: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected the region to yield 'i32', got 'f32'}}
  %0 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], i32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected results of one shape and layout, got '!tile.fragment<[query 16], f32, row>' and '!tile.fragment<[query 32], f32, row>'}}
  %0:2 = tile.map %s (%x: f32) {
    tile.yield %x, %x : f32, f32
  } : !tile.fragment<[query 16], f32, row> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 32], f32, row>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected at least one result}}
  "tile.map"(%s) ({
  ^bb0(%x: f32):
    "tile.yield"() : () -> ()
  }) : (!tile.fragment<[query 16], f32, row>) -> ()
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected the region to yield 'f32', 'i1', got 'f32'}}
  %0:2 = tile.map %s (%x: f32) {
    tile.yield %x : f32
  } : !tile.fragment<[query 16], f32, row> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], i1, row>
  return
}

// -----

func.func @f(%table: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected a region of ('i32'), got ('i64')}}
  %0 = tile.lookup_boxes %i to %i lines 16 (%line: i64) {
    tile.yield %i : i32
  }
  return
}

// -----

func.func @f(%b: !tile.barriers<2>) {
  // expected-error @+1 {{expected a count for each of the barriers (1), got 2}}
  tile.init_barriers %b counts [1, 8] : !tile.barriers<2>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected a region that ends with tile.yield}}
  %0 = "tile.map"(%s) ({
  ^bb0(%x: f32):
    llvm.unreachable
  }) : (!tile.fragment<[query 16, key 32], f32, acc>) -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error @+1 {{expects parent op to be one of}}
  tile.yield %x : f32
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>, %p: i1, %k: !tile.fragment<[key 32], i32, col>) {
  // expected-error @+1 {{expected the region to yield 'i1', got 'i32'}}
  %0 = tile.mask %s if %p where %k (%key: i32) {
    tile.yield %key : i32
  } : !tile.fragment<[query 16, key 32], f32, acc>, !tile.fragment<[key 32], i32, col> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>, %p: i1, %k: !tile.fragment<[key 32], i32, col>) {
  // expected-error @+1 {{expected scores and result of one f32 fragment type, got}}
  %0 = tile.mask %s if %p where %k (%key: i32) {
    tile.yield %p : i1
  } : !tile.fragment<[query 16, key 32], f32, acc>, !tile.fragment<[key 32], i32, col> -> !tile.fragment<[query 16, key 32], f32>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected an accumulator of f32 with two axes, got}}
  %0 = tile.reduce max %s : <[query 16], f32, row> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{expected the first axis of '!tile.fragment<[query 16, key 32], f32, acc>' along rows or the second along columns as result, got '!tile.fragment<[key 32], f32, row>'}}
  %0 = tile.reduce max %s : <[query 16, key 32], f32, acc> -> <[key 32], f32, row>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{along columns as result, got '!tile.fragment<[feature 32], f32, col>'}}
  %0 = tile.reduce add %s : <[query 16, key 32], f32, acc> -> <[feature 32], f32, col>
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
  // expected-error @+1 {{only sums can be partial, got 'max'}}
  %0 = tile.reduce max %s : <[query 16, key 32], f32, acc> -> <[query 16], f32, row, partial>
  return
}

// -----

func.func @f(%s: !tile.fragment<[query 16], f32, row>) {
  // expected-error @+1 {{expected a partial fragment of f32 and the same one complete, got}}
  %0 = tile.complete %s : <[query 16], f32, row> -> <[query 16], f32, row>
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

// -----

func.func @f(%l: !tile.fragment<[query 16], bf16>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected a left operand with two axes, got '!tile.fragment<[query 16], bf16>'}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[query 16], bf16>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{a left operand in registers has no line to start at}}
  %0 = tile.dot %l at %i, %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.shared<query 16, feature 64, bf16, swizzled>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{a left operand in shared memory needs the line it starts at}}
  %0 = tile.dot %l , %r, %a : !tile.shared<query 16, feature 64, bf16, swizzled>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.shared<query 16, feature 64, bf16, swizzled>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 32, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected at most the 16 lines of the tile, got 32}}
  %0 = tile.dot %l at %i, %r, %a : !tile.shared<query 16, feature 64, bf16, swizzled>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 32, key 32], f32, acc> -> !tile.fragment<[query 32, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], f16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected operands of one type, f16 or bf16, and an accumulator of f32, got 'f16', 'bf16' and 'f32'}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[query 16, feature 64], f16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[key 16, query 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{operands share no axis to contract: 'query' is not in}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[key 16, query 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 128, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected 64 along 'feature', got 128}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 128, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 16, feature 64], bf16, lhs>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 16], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected accumulator and result of [query 16, key 32], got '!tile.fragment<[query 16, key 16], f32, acc>'}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[query 16, feature 64], bf16, lhs>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 16], f32, acc> -> !tile.fragment<[query 16, key 16], f32, acc>
  return
}

// -----

func.func @f(%l: !tile.fragment<[query 8, feature 64], bf16>, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 8, key 32], f32>, %i: i32) {
  // expected-error @+1 {{expected multiples of 16 along all axes, got 8 x 32, contracted over 64}}
  %0 = tile.dot %l , %r, %a : !tile.fragment<[query 8, feature 64], bf16>, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 8, key 32], f32> -> !tile.fragment<[query 8, key 32], f32>
  return
}

// -----

func.func @f(%l: i32, %r: !tile.shared<key 32, feature 64, bf16, swizzled>, %a: !tile.fragment<[query 16, key 32], f32, acc>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = tile.dot %l , %r, %a : i32, !tile.shared<key 32, feature 64, bf16, swizzled>, !tile.fragment<[query 16, key 32], f32, acc> -> !tile.fragment<[query 16, key 32], f32, acc>
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

func.func @f(%i: i32, %t: !tile.scratch<32>) {
  // expected-error @+1 {{expected scratch of 64 bytes, got 32}}
  %0:2 = tile.scan %i in %t warps 16 : i32 in !tile.scratch<32> -> i32 total i32
  return
}

// -----

func.func @f(%i: i32, %t: !tile.scratch<256>) {
  // expected-error @+1 {{expected at most 32 warps, got 33}}
  %0:2 = tile.scan %i in %t warps 33 : i32 in !tile.scratch<256> -> i32 total i32
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>) {
  // expected-error @+1 {{expected one axis of the buffer's elements, 'i32', got '!tile.fragment<[query 16], f32, row>'}}
  %0 = tile.load_vector %b (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : <i32> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>) {
  // expected-error @+1 {{expected the region to yield 'i64', got 'i16'}}
  %0 = tile.load_vector %b (%line: i32) {
    %index = arith.trunci %line : i32 to i16
    tile.yield %index : i16
  } : <f32> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row, partial>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected a complete fragment of f32, got}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row, partial> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row>, %b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, got '!tile.buffer<bf16>'}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row> -> !tile.buffer<bf16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 64], f32, acc>, %b: !tile.buffer<i32>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, f16 or bf16, got '!tile.buffer<i32>'}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile.buffer<i32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 8], f32, acc>, %b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a multiple of 16 lines and of 16 columns, got}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16, feature 8], f32, acc> -> !tile.buffer<bf16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{a fragment with one axis has no columns}}
  tile.store %f to %b lines %n column %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 64], f32, acc>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected the region to yield 'i64', got 'i16'}}
  tile.store %f to %b lines %n (%line: i32) {
    %slot = arith.trunci %line : i32 to i16
    tile.yield %slot : i16
  } : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile.buffer<f32>
  return
}
