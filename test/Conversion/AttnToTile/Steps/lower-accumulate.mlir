// RUN: attn-opt %s --attn-lower-accumulate | FileCheck %s

// Pairs are rounded to the elements of the other factor. If features come first, pairs are the transposed right operand.

!p = !tile.fragment<[query 16, key 64], f32>
!v = !tile.shared<key 64, feature 32, bf16>
!o = !tile.fragment<[query 16, feature 32], f32>
!transposed = !tile.fragment<[key 64, query 8], f32>
!wide = !tile.fragment<[feature 32, key 64], f16>
!sum = !tile.fragment<[feature 32, query 8], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @rows_first(
  func.func @rows_first(%p: !p, %v: !v, %o: !o) -> !o {
    // CHECK-NEXT: %[[P:.*]] = tile.cast %arg0 : <[query 16, key 64], f32> -> <[query 16, key 64], bf16>
    // CHECK-NEXT: %[[O:.*]] = tile.mma %[[P]], %arg1, %arg2 :
    // CHECK-NEXT: return %[[O]] :
    %0 = attn.accumulate mma %p, %v into %o : !p, !v -> !o
    return %0 : !o
  }
  // CHECK-LABEL: func.func @features_first(
  func.func @features_first(%p: !transposed, %v: !wide, %o: !sum) -> !sum {
    // CHECK-NEXT: %[[P:.*]] = tile.cast %arg0 : <[key 64, query 8], f32> -> <[query 8, key 64], f16>
    // CHECK-NEXT: tile.mma %arg1, %[[P]], %arg2 :
    %0 = attn.accumulate mma %p, %v into %o : !transposed, !wide -> !sum
    return %0 : !sum
  }
  // CHECK-LABEL: func.func @four_warps(
  func.func @four_warps(%p: !p, %v: !v, %o: !o) -> !o {
    // CHECK-NEXT: %[[P:.*]] = tile.cast %arg0 :
    // CHECK-NEXT: %[[WAITS:.*]] = tile.start_mma %[[P]], %arg1 plus %arg2 :
    // CHECK-NEXT: %[[ENDED:.*]] = tile.wait_mmas 0 of %[[WAITS]] :
    // CHECK-NEXT: %[[AGAIN:.*]] = tile.cast %arg0 :
    // CHECK-NEXT: %[[STARTED:.*]] = tile.start_mma %[[AGAIN]], %arg1 plus %[[ENDED]] :
    // CHECK-NEXT: tile.wait_mmas 1 of %[[STARTED]] :
    %0 = attn.accumulate wgmma %p, %v into %o : !p, !v -> !o
    %1 = attn.accumulate started %p, %v into %0 : !p, !v -> !o
    %2 = tile.wait_mmas 1 of %1 : !o -> !o
    return %2 : !o
  }
}
