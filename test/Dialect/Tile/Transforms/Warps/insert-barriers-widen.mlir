// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s

// Producers widen a tile that they gathered elsewhere. Each of four warps arrives once, and MMAs need no fence after
// the wait: the writers fence. The loop gets the stages of the gather's rings.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!codes = !tile.shared<key 64, feature 64, i8>
!keys = !tile.shared<key 64, feature 64, f16>
!queries = !tile.shared<query 128, feature 64, f16>
!scores = !tile.fragment<[query 16, key 64], f32>

gpu.module @kernels {
  // CHECK-LABEL: @widen
  // CHECK: %[[STORED:.*]] = tile.alloc : !tile.ring<2, <key 64, feature 64, i8>>
  // CHECK: %[[RING:.*]] = tile.alloc : !tile.ring<3, <key 64, feature 64, f16>>
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: tile.init_barriers %[[FULL]], %[[EMPTY]] counts [4, 8]
  // CHECK: scf.for
  // CHECK: %[[TILE:.*]] = tile.ring_stage %[[RING]][%[[STAGE:.*]]]
  // CHECK: tile.mbarrier_wait %[[EMPTY]][%[[STAGE]]] before parity
  // CHECK-NEXT: %[[CODES:.*]] = tile.ring_stage %[[STORED]]
  // CHECK-NEXT: tile.gather producers
  // CHECK: tile.commit
  // CHECK-NEXT: tile.wait 0
  // CHECK-NEXT: tile.sync producers
  // CHECK-NEXT: tile.widen_tile %[[CODES]] into %[[TILE]]
  // CHECK-NEXT: tile.sync producers
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: tile.arrive %[[FULL]][%[[STAGE]]]
  // CHECK: } {tile.stages = 2 : i64}
  // CHECK: tile.mbarrier_wait %[[FULL]]
  // CHECK-NOT: tile.fence_async
  // CHECK: tile.start_mma
  func.func @widen(%n: i32, %b: !tile.buffer<i8>, %z: i64, %q: !queries) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %zero = arith.constant 0.0 : f32
    %stored = tile.alloc : !tile.ring<2, !codes>
    %ring = tile.alloc : !tile.ring<3, !keys>
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring (%tile: !keys) {
          %codes = tile.ring_stage %stored[%c0] : <2, !codes> -> !codes
          tile.gather producers %i to %n from %b origins %z strides [64] into %codes (%line: i32) {
            tile.yield %line : i32
          } : !tile.buffer<i8> -> !codes
          tile.commit
          tile.wait 0
          tile.sync producers
          tile.widen_tile %codes into %tile : !codes -> !keys
          tile.sync producers
        } : !tile.ring<3, !keys> -> !keys
      }
    } else {
      %init = tile.splat %zero : f32 -> !scores
      %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %init) -> (!scores) : i32 {
        %t = tile.consume %ring : !tile.ring<3, !keys> -> !keys
        %started = tile.start_mma %q at %c0, %t plus %acc : !queries, !keys, !scores -> !scores
        %s = tile.wait_mmas 0 of %started : !scores -> !scores
        scf.yield %s : !scores
      }
    }
    return
  }
}
