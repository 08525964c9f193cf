// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-pipeline-copies

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @no_gather(%n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // expected-error @+1 {{expected a gather, a sync and another sync in a loop with tile.stages}}
    scf.for %i = %c0 to %n step %c1 : i32 {
      tile.sync warp
      tile.sync warp
    } {tile.stages = 2 : i64}
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @late_gather(%n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !keys>
    // expected-error @+1 {{expected a gather, a sync and another sync in a loop with tile.stages}}
    scf.for %i = %c0 to %n step %c1 : i32 {
      tile.sync warp
      %slot = tile.ring_stage %ring[%c0] : <2, !keys> -> !keys
      tile.gather warp %i to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.sync warp
    } {tile.stages = 2 : i64}
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @two_gathers(%n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !keys>
    // expected-error @+1 {{expected one gather per iteration, found two}}
    scf.for %i = %c0 to %n step %c1 : i32 {
      %slot = tile.ring_stage %ring[%c0] : <2, !keys> -> !keys
      tile.gather warp %i to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.gather warp %i to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.sync warp
      tile.sync warp
    } {tile.stages = 2 : i64}
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @from_one(%n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !keys>
    // expected-error @+1 {{expected a loop with tile.stages to count from 0 in steps of 1}}
    scf.for %i = %c1 to %n step %c1 : i32 {
      %slot = tile.ring_stage %ring[%c1] : <2, !keys> -> !keys
      tile.gather warp %i to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.sync warp
      tile.sync warp
    } {tile.stages = 2 : i64}
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @slots(%n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !keys>
    scf.for %i = %c0 to %n step %c1 : i32 {
      %slot = tile.ring_stage %ring[%c0] : <2, !keys> -> !keys
      // expected-error @+1 {{expected to gather into stages of rings of 3 tiles}}
      tile.gather warp %i to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.sync warp
      tile.sync warp
    } {tile.stages = 3 : i64}
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  func.func @carried(%n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %ring = tile.alloc : !tile.ring<2, !keys>
    %0 = scf.for %i = %c0 to %n step %c1 iter_args(%begin = %c0) -> (i32) : i32 {
      %slot = tile.ring_stage %ring[%c0] : <2, !keys> -> !keys
      // expected-error @+1 {{depends on a value that the loop carries: it cannot run ahead}}
      tile.gather warp %begin to %n from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.sync warp
      tile.sync warp
      %next = arith.addi %begin, %c16 : i32
      scf.yield %next : i32
    } {tile.stages = 2 : i64}
    return
  }
}
