// RUN: attn-opt %s -split-input-file -verify-diagnostics

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

func.func @f(%table: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected a region of ('i32'), got ('i64')}}
  %0 = tile.lookup_boxes %i to %i lines 16 (%line: i64) {
    tile.yield %i : i32
  }
  return
}

// -----

func.func @fetch(%i: i32, %z: i64, %b: !tile.buffer<bf16>) {
  // expected-error @+1 {{expected a source of 8-bit values, got 'bf16'}}
  %0 = tile.fetch_lines 8 panels 1 at %i from %b origin %z pitch %i : !tile.buffer<bf16> -> vector<4xi32>
  return
}

// -----

// A warp of 64 lines has eight results for each panel.
func.func @fetch(%i: i32, %z: i64, %b: !tile.buffer<f8E4M3FN>) {
  // expected-error @+1 {{expected results of 16 features for each lane of some warps, 8, 16, 24 or 32 lines for each warp, got 3 for 64 lines of 1 panels}}
  %0:3 = tile.fetch_lines 64 panels 1 at %i from %b origin %z pitch %i : !tile.buffer<f8E4M3FN> -> vector<4xi32>, vector<4xi32>, vector<4xi32>
  return
}

// -----

// A lookup gives a warp 32 slots.
func.func @fetch(%i: i32, %z: i64, %b: !tile.buffer<f8E4M3FN>) {
  // expected-error @+1 {{expected results of 16 features for each lane of some warps, 8, 16, 24 or 32 lines for each warp, got 8 for 64 lines of 1 panels}}
  %0:8 = tile.fetch_lines 64 panels 1 at %i from %b origin %z pitch %i : !tile.buffer<f8E4M3FN> -> vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>
  return
}
