// RUN: attn-opt %s --attn-make-kernels --attn-walk-rows --canonicalize -split-input-file | FileCheck %s

// Keys of 8 bits and values of 4: a lane takes eight numbers, 16 bytes of a row, and puts 8 and 4 bytes of quantized
// values. Groups of 128 numbers are 16 lanes, so a piece has the metadata of two. All loads stand before the first
// store.
// CHECK-LABEL: func.func @append(
// CHECK-SAME: tile.blocks_per_sm = 2
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 4 : i32, role = "append", rows_per_warp = 8 : i32}
// CHECK-SAME: #tile.parameter<buffer, "kv.k_pages">, #tile.parameter<dim, "kv.k_layer">, #tile.parameter<buffer, "kv.k_meta">, #tile.parameter<dim, "kv.k_meta_layer">
// CHECK-SAME: #tile.parameter<buffer, "slots">, #tile.parameter<buffer, "status">]
// CHECK: %[[K:.*]] = attn.load_rows keys of %{{.*}} as <chunk = 16, width = 32, lanes = 32>
// CHECK-NEXT: %[[V:.*]] = attn.load_rows values of %{{.*}} as <chunk = 16, width = 32, lanes = 32>
// CHECK-NEXT: %[[KC:.*]], %[[KM:.*]] = attn.quantize_rows keys of %[[K]] for %[[KV:.*]] layer %{{.*}} piece %{{.*}} as <chunk = 8, width = 32, lanes = 32> status %{{.*}}
// CHECK-NEXT: attn.store_rows %[[KC]] to keys of %[[KV]] listed %{{.*}} as <chunk = 8, width = 32, lanes = 32>
// CHECK-NEXT: attn.store_rows %[[KM]] to keys meta of %[[KV]] listed %{{.*}} as <chunk = 4, width = 2, lanes = 32>
// CHECK-NEXT: %[[VC:.*]], %[[VM:.*]] = attn.quantize_rows values of %[[V]]
// CHECK-NEXT: attn.store_rows %[[VC]] to values of %[[KV]] listed %{{.*}} as <chunk = 4, width = 32, lanes = 32>
// CHECK-NEXT: attn.store_rows %[[VM]] to values meta of %[[KV]]
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}, %status: tensor<1xi32> {attn.name = "status"}) {
  attn.append %k, %v to %kv at %slots status %status : !rows, !rows, !cache, tensor<?xi32>, tensor<1xi32>
  return
}

// -----

// Slots move unchanged, their metadata in chunks as large as possible: 8 heads have 8 lines of 16 bytes.
// CHECK-LABEL: func.func @move(
// CHECK-SAME: tile.blocks_per_sm = 4
// CHECK-COUNT-4: attn.load_rows
// CHECK: attn.store_rows %{{.*}} to keys of %{{.*}} as <chunk = 16, width = 16, lanes = 32>
// CHECK: attn.store_rows %{{.*}} to keys meta of %{{.*}} as <chunk = 16, width = 8, lanes = 32>
// CHECK: attn.store_rows %{{.*}} to values of %{{.*}} as <chunk = 16, width = 32, lanes = 32>
// CHECK: attn.store_rows %{{.*}} to values meta of %{{.*}} as <chunk = 4, width = 8, lanes = 32>
// CHECK-NOT: attn.quantize_rows
!cache = !attn.kv<packed, heads = 8, dim = 64, key = !attn.quantized<i4, per = 16>, value = !attn.quantized<f8E4M3FN, per = token>>
func.func @move(%kv: !cache {attn.name = "kv"}, %from: tensor<?xi32> {attn.name = "from"}, %to: tensor<?xi32> {attn.name = "to"}) {
  attn.move %kv from %from to %to : !cache, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

// With given scales, there is no metadata to put. Keys of the same format are copied beside.
// CHECK-LABEL: func.func @requantize(
// CHECK-SAME: role = "requantize"
// CHECK: %[[K:.*]] = attn.load_rows keys of %[[HIGH:.*]] listed
// CHECK: %[[C:.*]] = attn.load_rows values of %[[HIGH]] listed
// CHECK-NOT: attn.load_rows
// CHECK: attn.store_rows %[[K]] to keys of %[[LOW:.*]] listed
// CHECK: %[[V:.*]] = attn.dequantize_rows values of %[[C]] from %[[HIGH]] {{.*}} -> tensor<?x?x2x64xf32>
// CHECK: %[[VC:.*]], %[[VM:.*]] = attn.quantize_rows values of %[[V]] for %[[LOW]]
// CHECK: attn.store_rows %[[VC]] to values of %[[LOW]] listed {{.*}} as <chunk = 2, width = 16, lanes = 32>
// CHECK: attn.store_rows %[[VM]] to values meta of %[[LOW]] listed
!high = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = !attn.quantized<f8E5M2, per = head>>
!low = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = !attn.quantized<i2, per = 64>>
func.func @requantize(%kv: !high {attn.name = "kv"}, %low: !low {attn.name = "low"}, %from: tensor<?xi32> {attn.name = "from"}, %to: tensor<?xi32> {attn.name = "to"}) {
  attn.requantize %kv at %from to %low at %to : !high, tensor<?xi32>, !low, tensor<?xi32>
  return
}
