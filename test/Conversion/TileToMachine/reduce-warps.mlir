// RUN: attn-opt %s --tile-allocate-shared --tile-infer-layouts --tile-to-machine | FileCheck %s

// One lane of each row stores the warp's numbers. Between two barriers every lane reads those of both warps for its
// two rows.

gpu.module @m {
  func.func @largest(%out: !tile.buffer<f32>, %x: f32) attributes {tile.threads = 64 : i32, tile.parameters = []} {
    %scratch = tile.alloc : !tile.scratch<128>
    %warp = tile.warp_id : i32
    %lines = arith.constant 16 : i32
    %rows = tile.splat %x : f32 -> !tile.fragment<[query 16], f32>
    %all = tile.reduce_warps max %rows warps 2 warp %warp scratch %scratch : !tile.fragment<[query 16], f32>, !tile.scratch<128> -> !tile.fragment<[query 16], f32>
    tile.store %all to %out lines %lines stride 1 (%line: i32) {
      tile.yield %line : i32
    } : <[query 16], f32> -> <f32>
    return
  }
}

// CHECK-LABEL: func.func @largest
// CHECK: scf.if
// CHECK-COUNT-2: llvm.store
// CHECK: nvvm.barrier0
// CHECK-COUNT-4: llvm.load
// CHECK: nvvm.barrier0
