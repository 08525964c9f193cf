// RUN: attn-opt %s -split-input-file -verify-diagnostics

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

func.func @f(%t: !tile.shared<query 48, feature 1, i32>) {
  // expected-error @+1 {{expected a tile of one column of 32 bits, with a multiple of 32 lines, got '!tile.shared<query 48, feature 1, i32>'}}
  %0 = tile.any_line %t (%n: i32) {
    %no = arith.constant false
    tile.yield %no : i1
  } : !tile.shared<query 48, feature 1, i32>
  return
}

// -----

func.func @f(%t: !tile.shared<query 32, feature 1, i32>) {
  // expected-error @+1 {{expected a region of ('i32'), got ('f32')}}
  %0 = tile.any_line %t (%n: f32) {
    %no = arith.constant false
    tile.yield %no : i1
  } : !tile.shared<query 32, feature 1, i32>
  return
}
