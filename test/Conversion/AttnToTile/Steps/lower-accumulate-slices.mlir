// RUN: attn-opt %s --attn-lower-accumulate | FileCheck %s

// Values that are the first features of their keys, and a slice of these.

!p = !tile.fragment<[query 16, key 64], f32>
!keys = !tile.shared<key 64, feature 576, bf16>
!slice = !tile.fragment<[query 16, feature 256], f32>
gpu.module @latents {
  // CHECK-LABEL: func.func @first(
  func.func @first(%p: !p, %k: !keys, %o: !slice) -> !slice {
    // CHECK: tile.mma %{{.*}}, %arg1, %arg2 : !tile.fragment<[query 16, key 64], bf16>, !tile.shared<key 64, feature 576, bf16>, <[query 16, feature 256], f32>
    %0 = attn.accumulate mma %p, %k into %o : !p, !keys -> !slice
    return %0 : !slice
  }
  // CHECK-LABEL: func.func @slices(
  func.func @slices(%p: !p, %k: !keys, %first: i32, %o: !slice) -> !slice {
    // CHECK: %[[ONE:.*]] = tile.mma %{{.*}}, %arg1 from %arg2, %arg3 :
    // CHECK: tile.start_mma %{{.*}}, %arg1 from %arg2 plus %[[ONE]] :
    %0 = attn.accumulate mma %p, %k from %first into %o : !p, !keys -> !slice
    %1 = attn.accumulate wgmma %p, %k from %first into %0 : !p, !keys -> !slice
    return %1 : !slice
  }
}
