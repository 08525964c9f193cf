// RUN: attn-opt %s --attn-lower-lift | FileCheck %s

// The lift is the log2 of the tile's largest scale, in the unit of scores, and at least that of the smallest scale.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
!f16 = !tile.fragment<[key 64], f16>
!f32 = !tile.fragment<[key 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @half(
  func.func @half(%scales: !f16, %log2: f32) -> !row {
    // CHECK-NEXT: %[[SIZES:.*]] = tile.map %arg0 (%[[X:.*]]: f16) {
    // CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[X]] :
    // CHECK-NEXT: %[[SIZE:.*]] = math.absf %[[WIDE]] :
    // CHECK-NEXT: tile.yield %[[SIZE]] :
    // CHECK: -> !tile.fragment<[query 16, key 64], f32>
    // CHECK-NEXT: %[[LARGEST:.*]] = tile.reduce max %[[SIZES]] :
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[FLAT:.*]] = arith.cmpf oeq, %arg1, %[[ZERO]] :
    // CHECK-NEXT: %[[NONE:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[INVERSE:.*]] = tile.reciprocal %arg1
    // CHECK-NEXT: %[[UNITS:.*]] = arith.select %[[FLAT]], %[[NONE]], %[[INVERSE]] :
    // CHECK-NEXT: %[[LIFT:.*]] = tile.map %[[LARGEST]] (%[[Y:.*]]: f32) {
    // CHECK-NEXT: %[[LEAST:.*]] = arith.constant 5.96046448E-8 :
    // CHECK-NEXT: %[[SOME:.*]] = arith.maxnumf %[[Y]], %[[LEAST]] :
    // CHECK-NEXT: %[[LOG:.*]] = math.log2 %[[SOME]] :
    // CHECK-NEXT: %[[RESULT:.*]] = arith.mulf %[[LOG]], %[[UNITS]] :
    // CHECK-NEXT: tile.yield %[[RESULT]] :
    // CHECK: return %[[LIFT]] :
    %0 = attn.lift %scales unit %log2 of !s : !f16 -> !row
    return %0 : !row
  }
  // CHECK-LABEL: func.func @single(
  // CHECK: math.absf %{{arg.*}} :
  // CHECK: arith.constant 5.42101086E-20 :
  func.func @single(%scales: !f32, %log2: f32) -> !row {
    %0 = attn.lift %scales unit %log2 of !s : !f32 -> !row
    return %0 : !row
  }
}
