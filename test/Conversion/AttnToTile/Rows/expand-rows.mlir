// RUN: attn-opt %s --attn-expand-rows -split-input-file -verify-diagnostics | FileCheck %s

// A row of 64 bytes is four lanes wide, so one load has all eight rows. Lane i / 4 gives the target of its row and
// whether it exists.
// CHECK-LABEL: func.func @copy(
// CHECK-SAME: %[[FROM:[a-z0-9]+]]: !tile.buffer<i32>, %[[FROM_LAYER:[a-z0-9]+]]: i32, %[[TO:[a-z0-9]+]]: !tile.buffer<i32>, %{{.*}}: i32, %[[SLOT:[a-z0-9]+]]: i32)
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "k">, #tile.parameter<dim, "k.layer">, #tile.parameter<buffer, "kv.k">, #tile.parameter<dim, "kv.k_layer">, #tile.parameter<dim, "slot">]
// CHECK: %[[LANE:.*]] = tile.lane_id : i32
// CHECK: %[[ROW:.*]] = arith.divui %[[LANE]], %c4
// CHECK: %[[MARK:.*]] = tile.from_lane %[[SLOT]][%[[ROW]]]
// CHECK: %[[MARKED:.*]] = arith.cmpi sge, %[[MARK]], %c0
// CHECK: %[[THERE:.*]] = arith.andi %[[MARKED]], %{{.*}}
// The target of the row is known before the row is read.
// CHECK: tile.from_lane %[[SLOT]][%{{.*}}]
// CHECK: %[[WORDS:.*]]:4 = scf.if %[[THERE]]
// CHECK: tile.read_adjacent %[[FROM]]
// CHECK: scf.if
// CHECK-NEXT: tile.write_adjacent %[[WORDS]]#0, %[[WORDS]]#1, %[[WORDS]]#2, %[[WORDS]]#3 to %[[TO]]
// CHECK-NOT: tile.write_adjacent
!rows = tensor<?x?x1x32xf16>
!cache = !attn.kv<packed, heads = 1, dim = 32, key = f16, value = f16>
gpu.module @kernels {
  func.func @copy(%k: !rows {attn.name = "k"}, %kv: !cache {attn.name = "kv"}, %from: !tile.buffer<i32>, %from_layer: i32,
                  %to: !tile.buffer<i32>, %to_layer: i32, %slot: i32) attributes {tile.parameters =
      [#tile.parameter<buffer, "k">, #tile.parameter<dim, "k.layer">, #tile.parameter<buffer, "kv.k">,
       #tile.parameter<dim, "kv.k_layer">, #tile.parameter<dim, "slot">]} {
    %row = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %slot layer %layer piece %row as <chunk = 16, width = 4, lanes = 32> : !rows -> !rows
    attn.store_rows %p to keys of %kv listed %slot where %slot layer %layer piece %row as <chunk = 16, width = 4, lanes = 32> : !rows -> !cache
    return
  }
}

// -----

!rows = tensor<?x?x1x32xf16>
gpu.module @kernels {
  // expected-error @+1 {{expected a kernel that walks rows: --attn-walk-rows makes it}}
  func.func @without(%k: !rows {attn.name = "k"}, %row: i32, %layer: i64) {
    %p = attn.load_rows keys of %k %row where %row layer %layer piece %row as <chunk = 16, width = 4, lanes = 32> : !rows -> !rows
    return
  }
}
