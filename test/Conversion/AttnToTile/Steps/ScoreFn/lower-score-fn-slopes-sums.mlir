// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// Slopes of sums are added, and a number that does not depend on the score has none.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @sums(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> (!s, !s) {
    %three = arith.constant 3.0 : f32
    // CHECK: %[[X:.*]] = arith.mulf %{{.*}}, %arg1 :
    // CHECK: %[[P:.*]] = arith.mulf %[[X]], %[[X]] :
    // CHECK-NEXT: %[[P1:.*]] = arith.addf %[[X]], %[[X]] :
    // CHECK-NEXT: %[[C3:.*]] = arith.constant 3.000000e+00 :
    // CHECK-NEXT: %[[Q:.*]] = arith.divf %[[C3]], %[[P]] :
    // CHECK-NEXT: %[[Q1:.*]] = arith.mulf %[[P1]], %[[Q]] :
    // CHECK-NEXT: %[[Q2:.*]] = arith.negf %[[Q1]] :
    // CHECK-NEXT: %[[Q3:.*]] = arith.divf %[[Q2]], %[[P]] :
    // CHECK-NEXT: %[[N:.*]] = arith.negf %[[P]] :
    // CHECK-NEXT: %[[N1:.*]] = arith.negf %[[P1]] :
    // CHECK-NEXT: %[[D:.*]] = arith.subf %[[N]], %[[Q]] :
    // CHECK-NEXT: %[[M:.*]] = arith.negf %[[Q3]] :
    // CHECK-NEXT: %[[D1:.*]] = arith.addf %[[N1]], %[[M]] :
    // CHECK-NEXT: %[[F:.*]] = math.fma %[[D]], %[[P]], %[[Q]] :
    // CHECK-NEXT: %[[F1:.*]] = arith.mulf %[[D1]], %[[P]] :
    // CHECK-NEXT: %[[F2:.*]] = arith.mulf %[[P1]], %[[D]] :
    // CHECK-NEXT: %[[F3:.*]] = arith.addf %[[F1]], %[[F2]] :
    // CHECK-NEXT: %[[F4:.*]] = arith.addf %[[F3]], %[[Q3]] :
    // CHECK-NEXT: tile.yield %[[F]], %[[F4]] :
    %0:2 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %a = arith.mulf %x, %x : f32
      %b = arith.divf %three, %a : f32
      %c = arith.negf %a : f32
      %d = arith.subf %c, %b : f32
      %e = math.fma %d, %a, %b : f32
      attn.yield %e : f32
    } : !s, !row, !row -> !s, !s
    return %0#0, %0#1 : !s, !s
  }
}
