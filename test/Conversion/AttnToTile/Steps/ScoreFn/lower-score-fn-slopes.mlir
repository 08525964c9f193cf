// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// The score is followed by its derivative by the raw score, and by the element of read number 1. A tanh has its long
// form.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @slopes(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32, %t: !tile.buffer<f32>, %i: i64) -> (!s, !s, !s) {
    // CHECK: %[[TOKENS:.*]] = tile.coordinates %arg4 : <[key 64], i32>
    // CHECK-NEXT: %[[R:.*]]:3 = tile.map %arg0, %arg2, %arg3, %[[TOKENS]] (%[[S:.*]]: f32, %{{.*}}: i32, %{{.*}}: i32, %[[T:.*]]: i32) {
    // CHECK-NEXT: %[[X:.*]] = arith.mulf %[[S]], %arg1 : f32
    // CHECK-NEXT: %[[K:.*]] = arith.addi %[[T]], %arg5 :
    // CHECK: %[[A:.*]] = tile.read %arg6[%arg7] :
    // CHECK: %[[K64:.*]] = arith.extsi %[[K]] :
    // CHECK-NEXT: %[[B:.*]] = tile.read %arg6[%[[K64]]] :
    // CHECK: %[[Y:.*]] = arith.mulf %[[X]], %[[B]] :
    // CHECK-NEXT: %[[TANH:.*]] = math.tanh %[[Y]] :
    // CHECK-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 :
    // CHECK-NEXT: %[[SQUARE:.*]] = arith.mulf %[[TANH]], %[[TANH]] :
    // CHECK-NEXT: %[[SLOPE:.*]] = arith.subf %[[ONE]], %[[SQUARE]] :
    // CHECK-NEXT: %[[BY_SCORE:.*]] = arith.mulf %[[B]], %[[SLOPE]] :
    // CHECK: %[[AGAIN:.*]] = arith.subf %{{.*}}, %{{.*}} :
    // CHECK-NEXT: %[[BY_READ:.*]] = arith.mulf %[[X]], %[[AGAIN]] :
    // CHECK-NEXT: %[[RESULT:.*]] = arith.addf %[[TANH]], %[[A]] :
    // CHECK-NEXT: tile.yield %[[RESULT]], %[[BY_SCORE]], %[[BY_READ]] :
    // CHECK: return %[[R]]#0, %[[R]]#1, %[[R]]#2 :
    %0:3 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 attributes {reads = array<i64: 1>} {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %a = tile.read %t[%i] : <f32> -> f32
      %j = arith.extsi %k : i32 to i64
      %b = tile.read %t[%j] : <f32> -> f32
      %y = arith.mulf %x, %b : f32
      %z = math.tanh %y : f32
      %r = arith.addf %z, %a : f32
      attn.yield %r : f32
    } : !s, !row, !row -> !s, !s, !s
    return %0#0, %0#1, %0#2 : !s, !s, !s
  }
}
