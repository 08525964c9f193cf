// RUN: attn-opt %s --attn-lower-dequantize | FileCheck %s

// Quantized values are loaded with the result's axes and widened to its element.

!codes = !tile.shared<key 32, feature 64, f8E4M3FN>
!keys = !tile.fragment<[key 32, feature 64], f16>
!nibbles = !tile.shared<key 32, feature 64, i4>
!values = !tile.fragment<[feature 64, key 32], f16>
!col = !tile.fragment<[key 32], f16>
gpu.module @kernels {
  // CHECK-LABEL: func.func @exact(
  func.func @exact(%tile: !codes) -> !keys {
    // CHECK-NEXT: %[[C:.*]] = tile.load_rhs %arg0 : <key 32, feature 64, f8E4M3FN> -> <[key 32, feature 64], f8E4M3FN>
    // CHECK-NEXT: %[[K:.*]] = tile.widen %[[C]] : <[key 32, feature 64], f8E4M3FN> -> <[key 32, feature 64], f16>
    // CHECK-NEXT: return %[[K]] :
    %0 = attn.dequantize %tile : !codes -> !keys
    return %0 : !keys
  }
  // CHECK-LABEL: func.func @groups(
  func.func @groups(%tile: !nibbles, %c0: !col, %c1: !col, %z0: !col, %z1: !col) -> !values {
    // CHECK-NEXT: %[[C:.*]] = tile.load_rhs %arg0 per 32 : <key 32, feature 64, i4> -> <[feature 64, key 32], i4>
    // CHECK-NEXT: %[[V:.*]] = tile.widen %[[C]] times %arg1, %arg2 plus %arg3, %arg4 :
    // CHECK-NEXT: return %[[V]] :
    %0 = attn.dequantize %tile scales %c0, %c1 : !col, !col zeros %z0, %z1 : !col, !col per 32 : !nibbles -> !values
    return %0 : !values
  }
  // CHECK-LABEL: func.func @tiny(
  func.func @tiny(%tile: !nibbles) -> !values {
    // CHECK-NEXT: %[[C:.*]] = tile.load_rhs %arg0 :
    // CHECK-NEXT: %[[V:.*]] = tile.widen tiny %[[C]] :
    // CHECK-NEXT: return %[[V]] :
    %0 = attn.dequantize %tile tiny : !nibbles -> !values
    return %0 : !values
  }
}
