// RUN: attn-opt %s --attn-lower-scale-weights | FileCheck %s

// Numbers of tokens that have 16 bits are widened first.

!p = !tile.fragment<[query 16, key 64], f32>
!f16 = !tile.fragment<[key 64], f16>
!f32 = !tile.fragment<[key 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @half(
  func.func @half(%p: !p, %c: !f16) -> !p {
    // CHECK-NEXT: %[[SCALED:.*]] = tile.map %arg0, %arg1 (%[[P:.*]]: f32, %[[C:.*]]: f16) {
    // CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[C]] : f16 to f32
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[P]], %[[WIDE]] :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: return %[[SCALED]] :
    %0 = attn.scale_weights %p by %c : !f16, !p
    return %0 : !p
  }
  // CHECK-LABEL: func.func @single(
  func.func @single(%p: !p, %c: !f32) -> !p {
    // CHECK-NEXT: tile.map %arg0, %arg1 (%[[P:.*]]: f32, %[[C:.*]]: f32) {
    // CHECK-NEXT: arith.mulf %[[P]], %[[C]] :
    %0 = attn.scale_weights %p by %c : !f32, !p
    return %0 : !p
  }
}
