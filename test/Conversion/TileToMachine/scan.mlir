// RUN: attn-opt %s --tile-allocate-shared --tile-to-machine | FileCheck %s

// Sums over lanes by shuffles, over warps by shared memory, between two barriers: two warps take one step.

gpu.module @m {
  func.func @scan(%out: !tile.buffer<i32>) attributes {tile.threads = 64 : i32, tile.parameters = []} {
    %scratch = tile.alloc : !tile.scratch<8>
    %lane = tile.lane_id : i32
    %before, %total = tile.scan %lane in %scratch warps 2 : i32 in !tile.scratch<8> -> i32 total i32
    %index = arith.extsi %before : i32 to i64
    tile.write %total to %out[%index] : i32 -> <i32>
    return
  }
}

// CHECK-LABEL: func.func @scan
// CHECK-COUNT-6: nvvm.shfl.sync idx
// CHECK: scf.if
// CHECK: llvm.store
// CHECK: nvvm.barrier0
// CHECK: llvm.load
// CHECK-COUNT-3: nvvm.shfl.sync idx
// CHECK-NOT: nvvm.shfl
// CHECK: nvvm.barrier0
// CHECK: llvm.store
