// RUN: attn-opt %s --tile-to-machine --cse -split-input-file | FileCheck %s

// Totals that a block keeps for itself have the order of lanes: four registers of a lane, then four of the next.
gpu.module @kernels {
  // 16 lines of 32 columns are 16 registers of each of 32 lanes: four units, 128 elements apart.
  // CHECK-LABEL: func.func @copy(
  // CHECK: %[[LANE:.*]] = arith.muli %{{.*}}, %c4{{.*}} : i32
  // CHECK: %[[WIDE:.*]] = arith.extsi %[[LANE]] : i32 to i64
  // CHECK: %[[FIRST:.*]] = arith.addi %{{.*}}, %[[WIDE]] : i64
  // CHECK: %[[UNIT:.*]] = llvm.getelementptr %{{.*}}[%[[FIRST]]]
  // CHECK-NEXT: llvm.load %[[UNIT]] {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
  // CHECK: arith.addi %[[FIRST]], %c128{{.*}} : i64
  // CHECK: arith.addi %[[FIRST]], %c256{{.*}} : i64
  // CHECK: arith.addi %[[FIRST]], %c384{{.*}} : i64
  // CHECK-COUNT-4: llvm.store %{{.*}}, %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
  // CHECK-NOT: llvm.store
  func.func @copy(%from: !tile.buffer<f32>, %to: !tile.buffer<f32>, %index: i64) attributes {tile.threads = 32 : i32} {
    %f = tile.load_lanes %from[%index] : <f32> -> <[query 16, feature 32], f32, acc>
    tile.store_lanes %f to %to[%index] : <[query 16, feature 32], f32, acc> -> <f32>
    return
  }
}

// -----

// A word takes one conversion for two numbers. The first operand of each becomes the high half or byte.
gpu.module @kernels {
  // CHECK-LABEL: func.func @pack(
  // CHECK-SAME: %[[A:.*]]: f32, %[[B:.*]]: f32, %[[C:.*]]: f32, %[[D:.*]]: f32
  // CHECK: nvvm.convert.f32x2.to.bf16x2 %[[B]], %[[A]]
  // CHECK: nvvm.convert.f32x2.to.f16x2 %[[B]], %[[A]]
  // CHECK: nvvm.convert.f32x2.to.f8x2 {{.*}}%[[B]], %[[A]]
  // CHECK: nvvm.convert.f32x2.to.f8x2 {{.*}}%[[D]], %[[C]]
  // CHECK: llvm.shufflevector %{{.*}}, %{{.*}} [0, 1, 4, 5]
  func.func @pack(%a: f32, %b: f32, %c: f32, %d: f32) -> (i32, i32, i32) attributes {tile.threads = 32 : i32} {
    %0 = tile.pack %a, %b : bf16
    %1 = tile.pack %a, %b : f16
    %2 = tile.pack %a, %b, %c, %d : f8E4M3FN
    return %0, %1, %2 : i32, i32, i32
  }
}
