// RUN: attn-opt %s --tile-unroll-loops | FileCheck %s

// Four at once: operations before the reads, the reads, the sums in their order. Then two and one of the
// rest.

gpu.module @kernels {
  func.func @sum(%b: !tile.buffer<f32>, %lanes: i32, %n: i32) -> f32 {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %start = arith.constant 0.0 : f32
    %sum = scf.for %i = %zero to %n step %one iter_args(%s = %start) -> f32 : i32 {
      %l = tile.from_lane %lanes[%i] : i32
      %x = arith.extsi %l : i32 to i64
      %v = tile.read %b[%x] : <f32> -> f32
      %t = arith.addf %s, %v : f32
      scf.yield %t : f32
    } {tile.unroll = 4}
    return %sum : f32
  }
}

// CHECK-LABEL: func.func @sum(
// CHECK: %[[REST:.*]] = arith.remui %arg2, %c4_i32
// CHECK: %[[TO:.*]] = arith.subi %arg2, %[[REST]]
// CHECK: %[[FOURS:.*]] = scf.for %[[I:.*]] = %c0_i32 to %[[TO]] step %c4_i32{{.*}} iter_args(%[[S:.*]] = %cst)
// CHECK: tile.from_lane %arg1[%[[I]]]
// CHECK-COUNT-3: tile.from_lane
// CHECK: %[[V0:.*]] = tile.read
// CHECK-NEXT: %[[V1:.*]] = tile.read
// CHECK-NEXT: %[[V2:.*]] = tile.read
// CHECK-NEXT: %[[V3:.*]] = tile.read
// CHECK-NEXT: %[[S0:.*]] = arith.addf %[[S]], %[[V0]]
// CHECK-NEXT: %[[S1:.*]] = arith.addf %[[S0]], %[[V1]]
// CHECK-NEXT: %[[S2:.*]] = arith.addf %[[S1]], %[[V2]]
// CHECK-NEXT: %[[S3:.*]] = arith.addf %[[S2]], %[[V3]]
// CHECK-NEXT: scf.yield %[[S3]]
// CHECK: %[[TWOS:.*]] = scf.for %{{.*}} = %[[TO]] to %[[TO2:.*]] step %c2_i32{{.*}} iter_args(%{{.*}} = %[[FOURS]])
// CHECK: %[[ONES:.*]] = scf.for %{{.*}} = %[[TO2]] to %arg2 step %c1_i32{{.*}} iter_args(%{{.*}} = %[[TWOS]])
// CHECK: return %[[ONES]]
