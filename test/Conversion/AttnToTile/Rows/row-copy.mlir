// RUN: attn-opt %s --attn-to-tile -split-input-file | FileCheck %s

// Eight rows of 512 bytes and more: each load is one row of one piece, of keys and then of values, and all loads
// stand before the first store.
// CHECK-LABEL: gpu.module @append_kernels
// CHECK: func.func @append(%[[COUNT:[a-z0-9]+]]: !tile.buffer<i32>
// CHECK-SAME: tile.blocks_per_sm = 4
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 4 : i32, role = "append", rows_per_warp = 8 : i32}
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "row_count">, #tile.parameter<buffer, "k">, #tile.parameter<dim, "k.layer">, #tile.parameter<buffer, "kv.k_pages">, #tile.parameter<dim, "kv.k_layer">
// CHECK-SAME: tile.threads = 128
// The number of rows is no parameter.
// CHECK: tile.read %[[COUNT]][%{{.*}}] : <i32> -> i32
// CHECK: scf.for
// CHECK: tile.read %{{.*}}[%{{.*}}] : <i32> -> i32
// CHECK-NOT: tile.read %
// CHECK-COUNT-16: tile.read_adjacent
// CHECK-NOT: tile.read_adjacent
// CHECK-COUNT-16: tile.write_adjacent
// CHECK-NOT: tile.write_adjacent
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, tensor<?xi32>
  return
}

// -----

// Rows of 160 bytes: 80 lanes' worth in three loads; values of 64 bytes: one load for all eight.
// CHECK-LABEL: gpu.module @move_kernels
// CHECK: tile.launch = {grid = "rows", pieces = 1 : i32, role = "move", rows_per_warp = 8 : i32}
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "row_count">, #tile.parameter<buffer, "kv.k">, #tile.parameter<dim, "kv.k_layer">, #tile.parameter<buffer, "kv.v">, #tile.parameter<dim, "kv.v_layer">, #tile.parameter<dim, "layers">, #tile.parameter<buffer, "from">, #tile.parameter<buffer, "to">]
// CHECK-COUNT-4: tile.read_adjacent
// CHECK-NOT: tile.read_adjacent
// CHECK-COUNT-4: tile.write_adjacent
// CHECK-NOT: tile.write_adjacent
!cache = !attn.kv<packed, heads = 1, dim = 80, value_dim = 32, key = f16, value = f16>
func.func @move(%kv: !cache {attn.name = "kv"}, %from: tensor<?xi32> {attn.name = "from"},
                %to: tensor<?xi32> {attn.name = "to"}) {
  attn.move %kv from %from to %to : !cache, tensor<?xi32>, tensor<?xi32>
  return
}
