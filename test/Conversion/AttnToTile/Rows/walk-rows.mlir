// RUN: attn-opt %s --attn-make-kernels --attn-walk-rows --canonicalize -split-input-file | FileCheck %s

// The keys and the values of eight rows are taken before either is put: rows are taken, and slots receive them.
// CHECK-LABEL: gpu.module @append_kernels
// CHECK: func.func @append(%[[K:[a-z0-9]+]]: tensor<?x?x8x128xbf16> {attn.name = "k"}, %[[V:[a-z0-9]+]]: tensor<?x?x8x128xbf16> {attn.name = "v"}, %[[KV:[a-z0-9]+]]: !attn.kv{{.*}}, %{{.*}}: tensor<?xi32> {attn.name = "slots"}, %[[COUNT:[a-z0-9]+]]: !tile.buffer<i32>
// CHECK-SAME: tile.blocks_per_sm = 4
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 4 : i32, role = "append", rows_per_warp = 8 : i32}
// CHECK-SAME: tile.threads = 128
// CHECK: tile.read %[[COUNT]]
// CHECK: scf.for
// CHECK: %[[SLOTS:.*]] = tile.read
// CHECK: %[[MARK:.*]] = arith.select %{{.*}}, %[[SLOTS]], %{{.*}}
// CHECK-NEXT: %[[KEYS:.*]] = attn.load_rows keys of %[[K]] %[[FIRST:.*]] where %[[MARK]] layer %[[LAYER:.*]] piece %[[PIECE:.*]] as <chunk = 16, width = 32, lanes = 32> : tensor<?x?x8x128xbf16> -> tensor<?x?x8x128xbf16>
// CHECK-NEXT: %[[VALUES:.*]] = attn.load_rows values of %[[V]] %[[FIRST]] where %[[MARK]]
// CHECK-NEXT: attn.store_rows %[[KEYS]] to keys of %[[KV]] listed %[[SLOTS]] where %[[MARK]] layer %[[LAYER]] piece %[[PIECE]] as <chunk = 16, width = 32, lanes = 32> : tensor<?x?x8x128xbf16> -> !attn.kv
// CHECK-NEXT: attn.store_rows %[[VALUES]] to values of %[[KV]] listed %[[SLOTS]]
// CHECK-NEXT: }
// CHECK-NEXT: return
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, tensor<?xi32>
  return
}

// -----

// The result of a gather is named like an argument. Rows of 10 and of 4 chunks share a load.
// CHECK-LABEL: gpu.module @gather_kernels
// CHECK: func.func @gather(%[[KV:[a-z0-9]+]]: !attn.kv{{.*}}, %{{.*}}: tensor<?xi32> {attn.name = "slots"}, %[[K:[a-z0-9]+]]: tensor<?x?x1x80xf16> {attn.name = "k"}, %[[V:[a-z0-9]+]]: tensor<?x?x1x32xf16> {attn.name = "v"},
// CHECK: attn.load_rows keys of %[[KV]] listed %{{.*}} as <chunk = 16, width = 10, lanes = 32>
// CHECK: attn.load_rows values of %[[KV]] listed %{{.*}} as <chunk = 16, width = 4, lanes = 32>
// CHECK: attn.store_rows %{{.*}} to keys of %[[K]]
// CHECK: attn.store_rows %{{.*}} to values of %[[V]]
!keys = tensor<?x?x1x80xf16>
!values = tensor<?x?x1x32xf16>
!cache = !attn.kv<packed, heads = 1, dim = 80, value_dim = 32, key = f16, value = f16>
func.func @gather(%kv: !cache {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!keys, !values) {
  %k, %v = attn.gather %kv at %slots : !cache, tensor<?xi32> -> !keys, !values
  return %k, %v : !keys, !values
}
