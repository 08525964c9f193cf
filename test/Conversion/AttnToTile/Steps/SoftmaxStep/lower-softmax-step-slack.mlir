// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// The slack limits by how much a row's maximum may exceed its unit: 8 by default.

!s = !tile.fragment<[key 16, query 8], f32>
!row = !tile.fragment<[query 8], f32>
!sum = !tile.fragment<[query 8], f32, partial>
gpu.module @kernels {
  // CHECK-LABEL: func.func @usual(
  func.func @usual(%s: !s, %m: !row, %l: !sum, %log2: f32) -> i1 {
    // CHECK: %[[SLACK:.*]] = arith.constant 8.000000e+00 : f32
    // CHECK-NEXT: arith.cmpf ogt, %{{.*}}, %[[SLACK]] :
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 : !s, !row, !sum -> !row, !sum, !s, !row, i1
    return %0#4 : i1
  }
  // CHECK-LABEL: func.func @none(
  func.func @none(%s: !s, %m: !row, %l: !sum, %log2: f32) -> i1 {
    // CHECK: %[[SLACK:.*]] = arith.constant 0.000000e+00 : f32
    // CHECK-NEXT: arith.cmpf ogt, %{{.*}}, %[[SLACK]] :
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 slack 0 : !s, !row, !sum -> !row, !sum, !s, !row, i1
    return %0#4 : i1
  }
}
