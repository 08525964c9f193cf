// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// The short form of a tanh is an odd polynomial whose coefficients include the factor: six instructions.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @short(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> !s {
    %c = arith.constant 0.25 : f32
    // CHECK: %[[F1:.*]] = arith.mulf %arg1, %{{.*}} fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[F2:.*]] = arith.mulf %[[F1]], %[[F1]] :
    // CHECK-NEXT: %[[A1:.*]] = arith.constant 0.999997675 :
    // CHECK-NEXT: %[[C1:.*]] = arith.mulf %[[F1]], %[[A1]] :
    // CHECK-NEXT: %[[F3:.*]] = arith.mulf %[[F1]], %[[F2]] :
    // CHECK-NEXT: %[[A3:.*]] = arith.constant -0.333206564 :
    // CHECK-NEXT: %[[C3:.*]] = arith.mulf %[[F3]], %[[A3]] :
    // CHECK-NEXT: %[[F5:.*]] = arith.mulf %[[F3]], %[[F2]] :
    // CHECK-NEXT: %[[A5:.*]] = arith.constant 0.131451458 :
    // CHECK-NEXT: %[[C5:.*]] = arith.mulf %[[F5]], %[[A5]] :
    // CHECK-NEXT: %[[F7:.*]] = arith.mulf %[[F5]], %[[F2]] :
    // CHECK-NEXT: %[[A7:.*]] = arith.constant -0.0433724821 :
    // CHECK-NEXT: %[[C7:.*]] = arith.mulf %[[F7]], %[[A7]] :
    // CHECK: } else {
    // CHECK-NEXT: %[[SHORT:.*]] = tile.map %arg0, {{.*}} (%[[S:.*]]: f32, %{{.*}}: i32, %{{.*}}: i32, %{{.*}}: i32) {
    // CHECK: %[[S2:.*]] = arith.mulf %[[S]], %[[S]] :
    // CHECK-NEXT: %[[P5:.*]] = math.fma %[[C7]], %[[S2]], %[[C5]] :
    // CHECK-NEXT: %[[P3:.*]] = math.fma %[[P5]], %[[S2]], %[[C3]] :
    // CHECK-NEXT: %[[P1:.*]] = math.fma %[[P3]], %[[S2]], %[[C1]] :
    // CHECK-NEXT: %[[TANH:.*]] = arith.mulf %[[S]], %[[P1]] :
    // CHECK-NEXT: tile.yield %[[TANH]] :
    // CHECK: scf.yield %[[SHORT]] :
    %0 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %y = arith.mulf %x, %c : f32
      %t = math.tanh %y : f32
      attn.yield %t : f32
    } : !s, !row, !row -> !s
    return %0 : !s
  }
}
