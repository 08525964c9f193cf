// RUN: attn-opt %s --attn-expand-rows -split-input-file | FileCheck %s

// Eight numbers of a lane, groups of 16 numbers: two lanes exchange once for the smallest and once for the largest.
// Numbers are replaced or clamped only where magnitudes add up to more than the largest one, or to NaN. The inverse of the
// scale is one step from the chip's reciprocal.
// CHECK-LABEL: func.func @quantize(
// CHECK-COUNT-7: arith.addf
// CHECK: %[[SOME:.*]] = arith.cmpf ugt
// CHECK: scf.if %[[SOME]] -> (f32, f32, f32, f32, f32, f32, f32, f32)
// CHECK-COUNT-8: arith.select
// CHECK: } else {
// CHECK: %[[OTHER:.*]] = arith.xori
// CHECK: tile.from_lane %{{.*}}[%[[OTHER]]] : f32
// CHECK: arith.minnumf
// CHECK: tile.from_lane %{{.*}} : f32
// CHECK: arith.maxnumf
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.maxui
// CHECK: %[[GUESS:.*]] = tile.reciprocal
// CHECK: %[[OFF:.*]] = math.fma %{{.*}}, %[[GUESS]], %{{.*}} : f32
// CHECK: math.fma %[[OFF]], %[[GUESS]], %[[GUESS]] : f32
// CHECK-COUNT-8: math.fma
// CHECK-NOT: math.fma
// Quantized values stay where the numbers were; lane i has the metadata of row i % 8.
// CHECK: tile.from_lane %{{.*}} : i32
// CHECK: tile.write_adjacent
// CHECK: tile.write %
!rows = tensor<?x?x1x32xf16>
!cache = !attn.kv<packed, heads = 1, dim = 32, key = !attn.quantized<i8, per = 16>, value = f16>
gpu.module @kernels {
  func.func @quantize(%k: !rows {attn.name = "k"}, %kv: !cache {attn.name = "kv"}, %slot: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "slot">]} {
    %row = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %slot layer %layer piece %row as <chunk = 16, width = 4, lanes = 32> : !rows -> !rows
    %c, %m = attn.quantize_rows keys of %p for %kv layer %layer piece %row as <chunk = 8, width = 4, lanes = 32> : !rows, !cache -> !cache, !cache
    attn.store_rows %c to keys of %kv listed %slot where %slot layer %layer piece %row as <chunk = 8, width = 4, lanes = 32> : !cache -> !cache
    attn.store_rows %m to keys meta of %kv listed %slot where %slot layer %layer piece %row as <chunk = 4, width = 2, lanes = 32> : !cache -> !cache
    return
  }
}

// -----

// e4m3 of the tensor's scale: eight numbers are multiplied by its reciprocal, and rounded four at a time.
// CHECK-LABEL: func.func @round(
// CHECK: scf.if
// CHECK: } else {
// CHECK-COUNT-8: arith.mulf
// CHECK-NOT: arith.select
// CHECK-COUNT-2: tile.pack %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : f8E4M3FN
// CHECK-NOT: tile.pack
!rows = tensor<?x?x1x32xf16>
!cache = !attn.kv<packed, heads = 1, dim = 32, key = !attn.quantized<f8E4M3FN, per = tensor>, value = f16>
gpu.module @kernels {
  func.func @round(%k: !rows {attn.name = "k"}, %kv: !cache {attn.name = "kv"}, %slot: i32)
      attributes {tile.parameters = [#tile.parameter<dim, "slot">]} {
    %row = arith.constant 0 : i32
    %layer = arith.constant 0 : i64
    %p = attn.load_rows keys of %k %row where %slot layer %layer piece %row as <chunk = 16, width = 4, lanes = 32> : !rows -> !rows
    %c = attn.quantize_rows keys of %p for %kv layer %layer piece %row as <chunk = 8, width = 4, lanes = 32> : !rows, !cache -> !cache
    attn.store_rows %c to keys of %kv listed %slot where %slot layer %layer piece %row as <chunk = 8, width = 4, lanes = 32> : !cache -> !cache
    return
  }
}
