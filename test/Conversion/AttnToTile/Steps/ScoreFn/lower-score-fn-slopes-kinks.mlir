// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// The slope of |x| at 0 is 0, and the slope of a maximum of equals is that of the first.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @kinks(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> (!s, !s) {
    %three = arith.constant 3.0 : f32
    // CHECK: %[[X:.*]] = arith.mulf %{{.*}}, %arg1 :
    // CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 :
    // CHECK-NEXT: %[[ABS:.*]] = math.absf %[[X]] :
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[BELOW:.*]] = arith.cmpf olt, %[[X]], %[[ZERO]] :
    // CHECK-NEXT: %[[MINUS:.*]] = arith.constant -1.000000e+00 :
    // CHECK-NEXT: %[[NO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[ABS1:.*]] = arith.select %[[BELOW]], %[[MINUS]], %[[NO]] :
    // CHECK-NEXT: %[[ABOVE:.*]] = arith.cmpf ogt, %[[X]], %[[ZERO]] :
    // CHECK: %[[ABS2:.*]] = arith.select %[[ABOVE]], %[[ONE]], %[[ABS1]] :
    // CHECK: %[[MAX:.*]] = arith.maximumf %[[ABS]], %[[C3:.*]] :
    // CHECK-NEXT: %[[IS_FIRST:.*]] = arith.cmpf oeq, %[[ABS]], %[[MAX]] :
    // CHECK-NEXT: %[[NO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[MAX1:.*]] = arith.select %[[IS_FIRST]], %[[ABS2]], %[[NO]] :
    // CHECK: %[[LATER:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}} :
    // CHECK-NEXT: %[[S:.*]] = arith.select %[[LATER]], %[[C3]], %[[MAX]] :
    // CHECK-NEXT: %[[NO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[S1:.*]] = arith.select %[[LATER]], %[[NO]], %[[MAX1]] :
    // CHECK-NEXT: tile.yield %[[S]], %[[S1]] :
    %0:2 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %a = math.absf %x : f32
      %b = arith.maximumf %a, %three : f32
      %c = arith.cmpi slt, %q, %k : i32
      %d = arith.select %c, %three, %b : f32
      attn.yield %d : f32
    } : !s, !row, !row -> !s, !s
    return %0#0, %0#1 : !s, !s
  }
}
