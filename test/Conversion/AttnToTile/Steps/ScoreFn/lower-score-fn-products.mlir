// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s --implicit-check-not=scf.if

// Factors merge after the scale is known, before the loop. A tanh has no short form if it asks for the hardware's, or
// if its argument is not a multiple of the score.

!s = !tile.fragment<[key 64, query 8], f32>
!row = !tile.fragment<[query 8], i32>
gpu.module @kernels {
  func.func @products(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> !s {
    %three = arith.constant 3.0 : f32
    // CHECK: %[[FACTOR:.*]] = arith.mulf %arg1, %{{.*}} fastmath<reassoc,contract> :
    // CHECK: scf.for
    // CHECK: tile.coordinates %arg4 : <[key 64], i32>
    // CHECK: %[[X:.*]] = arith.mulf %{{.*}}, %[[FACTOR]] fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[A:.*]] = math.tanh %[[X]] fastmath<afn> :
    // CHECK: %[[Y:.*]] = arith.mulf %{{.*}}, %[[X]] fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[Z:.*]] = arith.addf %[[A]], %[[Y]] :
    // CHECK-NEXT: %[[T:.*]] = math.tanh %[[Z]] :
    // CHECK-NEXT: %[[R:.*]] = arith.mulf %[[T]], %{{.*}} fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[E:.*]] = arith.mulf %[[R]], %{{.*}} fastmath<reassoc,contract> :
    // CHECK-NEXT: tile.yield %[[E]] :
    %0 = scf.for %i = %first to %pos0 step %first iter_args(%last = %s) -> (!s) : i32 {
      %1 = attn.score_fn %last times %scale heads %heads at %at tokens %first pos0 %pos0 {
      ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
        %a = arith.mulf %x, %three : f32
        %b = math.tanh %a fastmath<afn> : f32
        %c = arith.mulf %three, %a : f32
        %d = arith.addf %b, %c : f32
        %e = math.tanh %d : f32
        %f = arith.mulf %e, %three : f32
        %g = arith.mulf %f, %three : f32
        attn.yield %g : f32
      } : !s, !row, !row -> !s
      scf.yield %1 : !s
    }
    return %0 : !s
  }
}
