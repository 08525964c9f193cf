// RUN: attn-opt %s -split-input-file -verify-diagnostics

!tile = !tile.shared<key 64, feature 64, bf16, swizzled>
func.func @lines(%m: !tile.tensor_map<4>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected boxes of a multiple of 8 lines, at most 32 of which make the 64 lines of the tile, got 12}}
  tile.tma_load %m from %i head %i lines 12 into %t on %b[%i] : !tile.tensor_map<4> -> !tile, !tile.barriers<1>
  return
}

// -----

!tile = !tile.shared<key 64, feature 64, bf16, swizzled>
func.func @next(%m: !tile.tensor_map<4>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected a tile of one box, 64 lines, beside a next slot, got 16}}
  tile.tma_load %m from %i next %i head %i lines 16 into %t on %b[%i] : !tile.tensor_map<4> -> !tile, !tile.barriers<1>
  return
}

// -----

!tile = !tile.shared<key 64, feature 96, bf16, swizzled>
func.func @maps(%m: !tile.tensor_map<4>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected a map for each of 2 widths of panels of 192 bytes, got 1}}
  tile.tma_load %m from %i head %i lines 64 into %t on %b[%i] : !tile.tensor_map<4> -> !tile, !tile.barriers<1>
  return
}

// -----

!tile = !tile.shared<key 64, feature 64, bf16, swizzled>
func.func @rank(%m: !tile.tensor_map<3>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected maps of at least four axes, got '!tile.tensor_map<3>'}}
  tile.tma_load %m from %i head %i lines 64 into %t on %b[%i] : !tile.tensor_map<3> -> !tile, !tile.barriers<1>
  return
}

// -----

!tile = !tile.shared<key 64, feature 64, bf16, boxes 32, swizzled>
func.func @boxes(%m: !tile.tensor_map<4>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected the tile's boxes of 32 lines, got 16}}
  tile.tma_load %m from %i head %i lines 16 into %t on %b[%i] : !tile.tensor_map<4> -> !tile, !tile.barriers<1>
  return
}

// -----

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, boxes 16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @along_features(%q: !q, %k: !k, %i: i32) {
  // expected-error @+1 {{expected lines in one piece where they are read along the other axis}}
  %0 = tile.start_mma %q at %i, %k : !q, !k -> !s
  return
}

// -----

// expected-error @+1 {{expected boxes of a multiple of 16 lines that divides 64 and fills a multiple of 1024 bytes, got 24}}
func.func private @box_lines(!tile.shared<key 64, feature 64, bf16, boxes 24, swizzled>)

// -----

// 16 lines of 160 bytes end in the middle of a pattern.
// expected-error @+1 {{fills a multiple of 1024 bytes, got 16}}
func.func private @box_bytes(!tile.shared<key 64, feature 80, bf16, boxes 16, swizzled>)

// -----

// expected-error @+1 {{expected 1 to 5 axes, got 6}}
func.func private @axes(!tile.tensor_map<6>)

// -----

// expected-error @+1 {{expected a list of names, a stride and a box size for each of 2 axes}}
module attributes {a = #tile.tensor_map<"m" of "k", bf16, extents = [64, 8], dims = [[]], strides = [2, 128], box = [64, 8], swizzle = 128>} {}

// -----

// expected-error @+1 {{expected the innermost stride to be the element's 2 bytes, got 4}}
module attributes {a = #tile.tensor_map<"m" of "k", bf16, extents = [64, 8], dims = [[], []], strides = [4, 128], box = [64, 8], swizzle = 128>} {}

// -----

// expected-error @+1 {{expected strides of multiples of 16 bytes, got 24}}
module attributes {a = #tile.tensor_map<"m" of "k", bf16, extents = [64, 8], dims = [[], []], strides = [2, 24], box = [64, 8], swizzle = 128>} {}

// -----

// expected-error @+1 {{expected a box of 1 to 256 along each axis, got 257}}
module attributes {a = #tile.tensor_map<"m" of "k", bf16, extents = [64, 999], dims = [[], []], strides = [2, 128], box = [64, 257], swizzle = 128>} {}

// -----

// expected-error @+1 {{expected a swizzle of 32, 64 or 128 bytes, as long as the box's innermost axis, got 128 for 64}}
module attributes {a = #tile.tensor_map<"m" of "k", bf16, extents = [32, 8], dims = [[], []], strides = [2, 64], box = [32, 8], swizzle = 128>} {}

// -----

func.func @three(%b: !tile.buffer<f32>, %i: i64) {
  // expected-error @+1 {{expected two or four elements, got 3}}
  %0, %1, %2 = tile.read_adjacent %b[%i] : !tile.buffer<f32> -> f32, f32, f32
  return
}

// -----

func.func @element(%b: !tile.buffer<i32>, %x: f32, %i: i64) {
  // expected-error @+1 {{expected elements of the buffer, 'i32', got 'f32'}}
  tile.write_adjacent %x, %x to %b[%i] : f32, f32 -> !tile.buffer<i32>
  return
}

// -----

!tile = !tile.shared<key 32, feature 64, bf16, boxes 16>
func.func @gather(%b: !tile.buffer<bf16>, %i: i32, %z: i64, %t: !tile) {
  // expected-error @+1 {{cannot gather into a tile cut into boxes}}
  tile.gather warp %i to %i from %b origins %z strides [64] into %t (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile
  return
}

// -----

!tile = !tile.shared<key 64, feature 32, bf16, swizzled>
func.func @panel(%m: !tile.tensor_map<4>, %i: i32, %t: !tile, %b: !tile.barriers<1>) {
  // expected-error @+1 {{expected panels of 128 bytes, from panel 0 or a later one on, in lines that are not padded, got}}
  tile.tma_load %m from %i head %i lines 64 panel 1 into %t on %b[%i] : !tile.tensor_map<4> -> !tile, !tile.barriers<1>
  return
}
