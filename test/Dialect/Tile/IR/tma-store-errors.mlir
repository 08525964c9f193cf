// RUN: attn-opt %s -split-input-file -verify-diagnostics

!queries = !tile.shared<query 128, feature 64, bf16, boxes 64, swizzled>
func.func @overlay(%queries: !queries, %i: i32) {
  // expected-error @+1 {{expected a tile of at most the 8192 bytes of a box of}}
  %0 = tile.overlay %queries at %i : !queries -> !tile.shared<query 64, feature 96, bf16, swizzled>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @stage(%tile: !tile, %o: !tile.fragment<[query 16, feature 64], bf16, lhs>, %i: i32) {
  // expected-error @+1 {{expected an accumulator of f32, got '!tile.fragment<[query 16, feature 64], bf16, lhs>'}}
  tile.stage %o into %tile at %i : !tile.fragment<[query 16, feature 64], bf16, lhs> -> !tile
  return
}

// -----

!tile = !tile.shared<query 64, feature 96, bf16, swizzled>
func.func @stage_columns(%tile: !tile, %o: !tile.fragment<[query 16, feature 64], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected whole lines, a multiple of 16 of them, of a tile in one piece}}
  tile.stage %o into %tile at %i : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, f8E4M3FN>
func.func @stage_element(%tile: !tile, %o: !tile.fragment<[query 16, feature 64], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected a tile of f16, bf16 or f32, got '!tile.shared<query 64, feature 64, f8E4M3FN>'}}
  tile.stage %o into %tile at %i : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile
  return
}

// -----

!tile = !tile.shared<query 64, feature 48, f32>
func.func @stage_sums(%tile: !tile, %o: !tile.fragment<[query 16, feature 48], f32, acc>, %i: i32) {
  // expected-error @+1 {{expected lines of whole panels of f32}}
  tile.stage %o into %tile at %i : !tile.fragment<[query 16, feature 48], f32, acc> -> !tile
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @send_sums(%m: !tile.tensor_map<4>, %tile: !tile, %i: i32) {
  // expected-error @+1 {{adds tiles of f32, got}}
  tile.tma_store %tile adds to %m from %i head %i : !tile -> !tile.tensor_map<4>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @send_part(%m: !tile.tensor_map<4>, %tile: !tile, %i: i32) {
  // expected-error @+1 {{expected a part of the panels or lines that are padded, got both}}
  tile.tma_store %tile to %m from %i head %i panel %i {padded} : !tile -> !tile.tensor_map<4>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, boxes 16, swizzled>
func.func @send_boxes(%m: !tile.tensor_map<4>, %tile: !tile, %i: i32) {
  // expected-error @+1 {{expected a tile in one box}}
  tile.tma_store %tile to %m from %i head %i : !tile -> !tile.tensor_map<4>
  return
}

// -----

!tile = !tile.shared<query 64, feature 96, bf16, swizzled>
func.func @send_maps(%m: !tile.tensor_map<4>, %tile: !tile, %i: i32) {
  // expected-error @+1 {{expected a map for each of 2 widths of panels of 192 bytes, got 1}}
  tile.tma_store %tile to %m from %i head %i : !tile -> !tile.tensor_map<4>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @scatter_element(%tile: !tile, %o: !tile.buffer<f32>, %i: i32, %at: i64) {
  // expected-error @+1 {{expected the element type of tile and tensor to agree}}
  tile.scatter %tile from %i count 16 end %i to %o (%row: i32) {
    tile.yield %at : i64
  } : !tile -> !tile.buffer<f32>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @scatter_columns(%tile: !tile, %o: !tile.buffer<bf16>, %i: i32, %at: i64) {
  // expected-error @+1 {{expected columns in chunks of 8, at most the 64 of a line, got 60}}
  tile.scatter %tile from %i count 16 end %i to %o (%row: i32) {
    tile.yield %at : i64
  } {columns = 60 : i64} : !tile -> !tile.buffer<bf16>
  return
}

// -----

!tile = !tile.shared<query 64, feature 64, bf16, swizzled>
func.func @scatter_count(%tile: !tile, %o: !tile.buffer<bf16>, %i: i32, %at: i64) {
  // expected-error @+1 {{expected a multiple of 8 lines that divides the tile's 64, got 24}}
  tile.scatter %tile from %i count 24 end %i to %o (%row: i32) {
    tile.yield %at : i64
  } : !tile -> !tile.buffer<bf16>
  return
}

// -----

// A warpgroup reads 64 contiguous lines.
!q = !tile.shared<query 64, feature 64, bf16, boxes 32, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
func.func @boxes_of_queries(%q: !q, %k: !k, %i: i32) {
  // expected-error @+1 {{expected a warpgroup's 64 lines in each box of the left operand}}
  %0 = tile.start_mma %q at %i, %k : !q, !k -> !s
  return
}

// -----

!numbers = !tile.shared<query 64, feature 2, f32>
func.func @numbers(%n: !tile.fragment<[query 16], f32, row>, %tile: !numbers, %i: i32) {
  // expected-error @+1 {{expected a number of f32 for each of 16 rows, and a tile of one column, got}}
  tile.stage %n into %tile at %i : !tile.fragment<[query 16], f32, row> -> !numbers
  return
}

// -----

!numbers = !tile.shared<query 64, feature 1, f32>
func.func @partial(%n: !tile.fragment<[query 16], f32, row, partial>, %tile: !numbers, %i: i32) {
  // expected-error @+1 {{expected a number of f32 for each of 16 rows, and a tile of one column, got}}
  tile.stage %n into %tile at %i : !tile.fragment<[query 16], f32, row, partial> -> !numbers
  return
}
