// RUN: attn-opt %s --attn-expand-rows -split-input-file | FileCheck %s

// A head of 32 features is in four lanes: eight squares are added up in a lane, then two exchanges add up the lanes'.
// CHECK-LABEL: func.func @normalize(
// CHECK: arith.mulf
// CHECK-COUNT-7: math.fma
// CHECK: tile.from_lane
// CHECK: arith.addf
// CHECK: tile.from_lane
// CHECK: arith.addf
// CHECK-NOT: tile.from_lane
// Three steps of Newton's method.
// CHECK-COUNT-3: math.fma
// CHECK-NOT: math.fma
// CHECK-COUNT-4: tile.pack %{{.*}}, %{{.*}} : f16
// CHECK: tile.write_adjacent
!rows = tensor<?x?x1x32xf16>
gpu.module @kernels {
  func.func @normalize(%k: !rows {attn.name = "k"}, %o: !rows {attn.name = "rotated"}, %w: tensor<?x32xf32> {attn.name = "k_norm"}, %row: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "row">]} {
    %zero = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    %n = attn.normalize_rows %p by %w epsilon 1.0e-6 layer %layer as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows, tensor<?x32xf32> -> !rows
    attn.store_rows %n to keys of %o %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    return
  }
}

// -----

// Pairs of features 16 apart are two lanes apart: eight exchanges. All features turn, so nothing is selected at the end.
// CHECK-LABEL: func.func @halves(
// CHECK: tile.read_adjacent %{{.*}} : <i32> -> i32, i32, i32, i32
// CHECK-COUNT-8: tile.from_lane
// CHECK-NOT: tile.from_lane
// CHECK: tile.write_adjacent
!rows = tensor<?x?x1x32xf16>
!table = tensor<?x16xf32>
gpu.module @kernels {
  func.func @halves(%k: !rows {attn.name = "k"}, %o: !rows {attn.name = "rotated"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %row: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "row">]} {
    %zero = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    %n = attn.rotate_rows %p by %cos, %sin at %row as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows, !table, !table -> !rows
    attn.store_rows %n to keys of %o %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    return
  }
}

// -----

// An interleaved pair is in one lane, which reads the four angles of its eight features.
// CHECK-LABEL: func.func @pairs(
// CHECK-NOT: tile.from_lane
// CHECK: tile.read_adjacent %{{.*}} : <i32> -> i32, i32, i32, i32
// CHECK: tile.read_adjacent %{{.*}} : <i32> -> i32, i32, i32, i32
// CHECK-NOT: tile.from_lane
// CHECK: tile.write_adjacent
!rows = tensor<?x?x1x32xf16>
!table = tensor<?x16xf32>
gpu.module @kernels {
  func.func @pairs(%k: !rows {attn.name = "k"}, %o: !rows {attn.name = "rotated"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %row: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "row">]} {
    %zero = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    %n = attn.rotate_rows %p interleaved by %cos, %sin at %row as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows, !table, !table -> !rows
    attn.store_rows %n to keys of %o %row where %zero layer %layer piece %zero as <chunk = 16, width = 4, lanes = 32, heads = 1> : !rows -> !rows
    return
  }
}

// -----

// A head of 512 features is in two loads. Weights of the first 256 leave the second as it is: its lanes add nothing, and five
// exchanges add up the lanes.
// CHECK-LABEL: func.func @normalize_first(
// CHECK-COUNT-2: scf.if
// CHECK: arith.mulf
// CHECK-COUNT-7: math.fma
// CHECK-NOT: math.fma
// CHECK-COUNT-5: tile.from_lane
// CHECK-NOT: tile.from_lane
// CHECK-COUNT-3: math.fma
// CHECK-COUNT-2: tile.write_adjacent
!rows = tensor<?x?x1x512xf16>
gpu.module @kernels {
  func.func @normalize_first(%k: !rows {attn.name = "k"}, %o: !rows {attn.name = "rotated"}, %w: tensor<?x256xf32> {attn.name = "k_norm"}, %row: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "row">]} {
    %zero = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %zero layer %layer piece %zero as <chunk = 16, width = 64, lanes = 32, heads = 1> : !rows -> !rows
    %n = attn.normalize_rows %p by %w epsilon 1.0e-6 layer %layer as <chunk = 16, width = 64, lanes = 32, heads = 1> : !rows, tensor<?x256xf32> -> !rows
    attn.store_rows %n to keys of %o %row where %zero layer %layer piece %zero as <chunk = 16, width = 64, lanes = 32, heads = 1> : !rows -> !rows
    return
  }
}

// -----

// Only the last of three loads has features that turn. Their partners are in it, too: eight exchanges.
// CHECK-LABEL: func.func @last_features(
// CHECK-COUNT-8: tile.from_lane
// CHECK-NOT: tile.from_lane
// CHECK-COUNT-3: tile.write_adjacent
!rows = tensor<?x?x1x576xf16>
!table = tensor<?x32xf32>
gpu.module @kernels {
  func.func @last_features(%k: !rows {attn.name = "k"}, %o: !rows {attn.name = "rotated"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %row: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "row">]} {
    %zero = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %zero layer %layer piece %zero as <chunk = 16, width = 72, lanes = 32, heads = 1> : !rows -> !rows
    %n = attn.rotate_rows %p by %cos, %sin at %row from 512 as <chunk = 16, width = 72, lanes = 32, heads = 1> : !rows, !table, !table -> !rows
    attn.store_rows %n to keys of %o %row where %zero layer %layer piece %zero as <chunk = 16, width = 72, lanes = 32, heads = 1> : !rows -> !rows
    return
  }
}
