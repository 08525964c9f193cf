// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s

// One ring, one loop: its barriers and their positions.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!queries = !tile.shared<query 128, feature 64, bf16>
!scores = !tile.fragment<[query 16, key 64], f32>

gpu.module @kernels {
  // A TMA load arrives once, each of eight warps releases stages.
  // CHECK-LABEL: @fetch
  // CHECK: %[[RING:.*]] = tile.alloc : !tile.ring<3,
  // CHECK-NEXT: %[[FULL:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: tile.init_barriers %[[FULL]], %[[EMPTY]] counts [1, 8]
  // CHECK-NEXT: tile.publish_barriers
  // CHECK-NEXT: tile.sync block
  // CHECK-NEXT: tile.warp_id
  // CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%[[T:.*]] = %c0_i32) -> (i32)
  // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[T]] of 3
  // CHECK-NEXT: %[[TILE:.*]] = tile.ring_stage %[[RING]][%[[STAGE]]]
  // CHECK-NEXT: %{{.*}}, %[[PARITY:.*]] = tile.ring_position %[[T]] of 3
  // CHECK-NEXT: tile.mbarrier_wait %[[EMPTY]][%[[STAGE]]] before parity %[[PARITY]]
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: tile.tma_load %{{.*}} from %[[I]] {{.*}} into %[[TILE]] on %[[FULL]][%[[STAGE]]]
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: scf.yield %[[NEXT]]
  // CHECK: scf.for {{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[U:.*]] = %c0_i32)
  // CHECK-NEXT: %[[TAKEN:.*]], %{{.*}} = tile.ring_position %[[U]] of 3
  // CHECK-NEXT: %{{.*}}, %[[PARITY:.*]] = tile.ring_position %[[U]] of 3
  // CHECK-NEXT: tile.mbarrier_wait %[[FULL]][%[[TAKEN]]] parity %[[PARITY]]
  // CHECK-NEXT: %[[TILE:.*]] = tile.ring_stage %[[RING]][%[[TAKEN]]]
  // CHECK-NEXT: tile.start_mma %{{.*}} at %{{.*}}, %[[TILE]] plus %[[ACC]]
  // CHECK-NEXT: %[[DONE:.*]] = tile.wait_mmas 0
  // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[U]] of 3
  // CHECK-NEXT: tile.arrive %[[EMPTY]][%[[STAGE]]]
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[U]], %c1_i32
  // CHECK-NEXT: scf.yield %[[DONE]], %[[NEXT]]
  func.func @fetch(%n: i32, %map: !tile.tensor_map<4>, %q: !queries) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %zero = arith.constant 0.0 : f32
    %ring = tile.alloc : !tile.ring<3, !keys>
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      %first = arith.cmpi eq, %warp, %c0 : i32
      scf.if %first {
        scf.for %i = %c0 to %n step %c1 : i32 {
          %t = tile.produce %ring warp 0 (%tile: !keys) {
            tile.tma_load %map from %i head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          } : !tile.ring<3, !keys> -> !keys
        }
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

  // If one warp gathers, its 32 threads arrive. Lanes' own reads need no fence, and lanes sync after them.
  // CHECK-LABEL: @one_warp_gathers
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: tile.init_barriers %[[FULL]], %[[EMPTY]] counts [32, 8]
  // CHECK: tile.mbarrier_wait %[[EMPTY]][%[[STAGE:.*]]] before parity
  // CHECK-NEXT: tile.gather warp
  // CHECK: tile.arrive_on_copies %[[FULL]][%[[STAGE]]]
  // CHECK: tile.mbarrier_wait %[[FULL]]
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: tile.load_columns
  // CHECK-NEXT: tile.sync warp
  // CHECK: tile.arrive %[[EMPTY]]
  func.func @one_warp_gathers(%n: i32, %b: !tile.buffer<f32>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, <query 64, feature 1, f32>>
    %warp = tile.warp_id : i32
    %c4 = arith.constant 4 : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      %first = arith.cmpi eq, %warp, %c0 : i32
      scf.if %first {
        scf.for %i = %c0 to %n step %c1 : i32 {
          %t = tile.produce %ring warp 0 (%tile: !tile.shared<query 64, feature 1, f32>) {
            tile.gather warp %i to %n from %b origins %z strides [1] into %tile (%line: i32) {
              tile.yield %line : i32
            } : !tile.buffer<f32> -> !tile.shared<query 64, feature 1, f32>
          } : !tile.ring<2, <query 64, feature 1, f32>> -> !tile.shared<query 64, feature 1, f32>
        }
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.consume %ring : !tile.ring<2, <query 64, feature 1, f32>> -> !tile.shared<query 64, feature 1, f32>
        %p = tile.load_columns %t : !tile.shared<query 64, feature 1, f32> -> !tile.fragment<[query 64], f32>
        tile.store %p to %b lines %n stride 1 (%line: i32) {
          tile.yield %line : i32
        } : !tile.fragment<[query 64], f32> -> !tile.buffer<f32>
      }
    }
    return
  }

  // Every thread of the producer warps arrives with its own copies, and MMAs need a fence after the wait for
  // them.
  // CHECK-LABEL: @gather
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: tile.init_barriers %[[FULL]], %[[EMPTY]] counts [128, 8]
  // CHECK-NEXT: tile.sync block
  // CHECK: tile.mbarrier_wait %[[EMPTY]][%[[STAGE:.*]]] before parity
  // CHECK-NEXT: tile.gather
  // CHECK: tile.arrive_on_copies %[[FULL]][%[[STAGE]]]
  // CHECK: tile.mbarrier_wait %[[FULL]]
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: tile.start_mma
  // CHECK-NEXT: tile.wait_mmas
  // CHECK-NEXT: tile.ring_position
  // CHECK-NEXT: tile.arrive %[[EMPTY]]
  func.func @gather(%n: i32, %b: !tile.buffer<bf16>, %z: i64, %q: !queries) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %ring = tile.alloc : !tile.ring<3, !keys>
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring (%tile: !keys) {
          tile.gather producers %i to %n from %b origins %z strides [64] into %tile (%line: i32) {
            tile.yield %line : i32
          } : !tile.buffer<bf16> -> !keys
        } : !tile.ring<3, !keys> -> !keys
      }
      tile.commit
      tile.wait 0
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.consume %ring : !tile.ring<3, !keys> -> !keys
        %started = tile.start_mma %q at %c0, %t : !queries, !keys -> !scores
        %s = tile.wait_mmas 0 of %started : !scores -> !scores
      }
    }
    return
  }

  // Each path through a tile.produce has one TMA load.
  // CHECK-LABEL: @ways
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK: tile.sync warp
  // CHECK-NEXT: arith.cmpi
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: tile.tma_load {{.*}} on %[[FULL]][%[[STAGE:.*]]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: tile.tma_load {{.*}} on %[[FULL]][%[[STAGE]]]
  func.func @ways(%n: i32, %produces: i1, %first: !tile.tensor_map<4>, %second: !tile.tensor_map<4>) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<3, !keys>
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          %even = arith.cmpi eq, %i, %c0 : i32
          scf.if %even {
            tile.tma_load %first from %i head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          } else {
            tile.tma_load %second from %i head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          }
        } : !tile.ring<3, !keys> -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.consume %ring : !tile.ring<3, !keys> -> !keys
      }
    }
    return
  }

  // A ring that is neither produced nor consumed needs no barriers.
  // CHECK-LABEL: @none
  // CHECK-NEXT: tile.alloc
  // CHECK-NEXT: return
  func.func @none() attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<3, !keys>
    return
  }
}
