// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// Each function multiplies the slope so far by its own: exponentials, logarithms and a root.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @exponentials(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> (!s, !s) {
    // CHECK: %[[EXP:.*]] = math.exp %{{.*}} :
    // CHECK-NEXT: %[[EXP2:.*]] = math.exp2 %[[EXP]] :
    // CHECK-NEXT: %[[A:.*]] = arith.mulf %[[EXP]], %[[EXP2]] :
    // CHECK-NEXT: %[[LN2:.*]] = arith.constant 0.693147182 :
    // CHECK-NEXT: %[[B:.*]] = arith.mulf %[[A]], %[[LN2]] :
    // CHECK-NEXT: %[[LOG:.*]] = math.log %[[EXP2]] :
    // CHECK-NEXT: %[[C:.*]] = arith.divf %[[B]], %[[EXP2]] :
    // CHECK-NEXT: %[[LOG2:.*]] = math.log2 %[[LOG]] :
    // CHECK-NEXT: %[[LOG2E:.*]] = arith.constant 1.44269502 :
    // CHECK-NEXT: %[[D:.*]] = arith.mulf %[[C]], %[[LOG2E]] :
    // CHECK-NEXT: %[[E:.*]] = arith.divf %[[D]], %[[LOG]] :
    // CHECK-NEXT: %[[ROOT:.*]] = math.sqrt %[[LOG2]] :
    // CHECK-NEXT: %[[HALF:.*]] = arith.constant 5.000000e-01 :
    // CHECK-NEXT: %[[F:.*]] = arith.mulf %[[E]], %[[HALF]] :
    // CHECK-NEXT: %[[G:.*]] = arith.divf %[[F]], %[[ROOT]] :
    // CHECK-NEXT: tile.yield %[[ROOT]], %[[G]] :
    %0:2 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %a = math.exp %x : f32
      %b = math.exp2 %a : f32
      %c = math.log %b : f32
      %d = math.log2 %c : f32
      %e = math.sqrt %d : f32
      attn.yield %e : f32
    } : !s, !row, !row -> !s, !s
    return %0#0, %0#1 : !s, !s
  }
}
