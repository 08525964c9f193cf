// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s

// Rings of two levels: their counters, and tiles that are used in inner loops.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!queries = !tile.shared<query 128, feature 64, bf16>
!scores = !tile.fragment<[query 16, key 64], f32>
!key_ring = !tile.ring<2, !keys>
!query_ring = !tile.ring<1, !queries>

gpu.module @kernels {
  // Queries are gathered by all, keys loaded by the first warp.
  // CHECK-LABEL: @mixed
  // Barriers of inner loops come first, each after its ring.
  // CHECK: %[[QUERIES:.*]] = tile.alloc : !tile.ring<1,
  // CHECK-NEXT: %[[KEYS:.*]] = tile.alloc : !tile.ring<2,
  // CHECK-NEXT: %[[KFULL:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: %[[KEMPTY:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: %[[QFULL:.*]] = tile.alloc : !tile.barriers<1>
  // CHECK-NEXT: %[[QEMPTY:.*]] = tile.alloc : !tile.barriers<1>
  // CHECK-NEXT: tile.init_barriers %[[QFULL]], %[[QEMPTY]], %[[KFULL]], %[[KEMPTY]] counts [128, 8, 1, 8]
  // The first warp counts both.
  // CHECK: scf.for {{.*}} iter_args(%[[Q:.*]] = %c0_i32, %[[K:.*]] = %c0_i32)
  // The number of a single stage is no constant.
  // CHECK-NEXT: %[[STAGE:.*]] = tile.from_lane %c0_i32[%c0_i32]
  // CHECK-NEXT: tile.ring_stage %[[QUERIES]][%[[STAGE]]]
  // CHECK-NEXT: tile.ring_position %[[Q]] of 1
  // CHECK: tile.mbarrier_wait %[[QEMPTY]][%[[STAGE]]]
  // CHECK-NEXT: tile.gather
  // CHECK: tile.arrive_on_copies %[[QFULL]][%[[STAGE]]]
  // CHECK-NEXT: %[[KEYLOOP:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[K]])
  // CHECK: tile.mbarrier_wait %[[KEMPTY]]
  // CHECK: tile.tma_load {{.*}} on %[[KFULL]]
  // CHECK: %[[QNEXT:.*]] = arith.addi %[[Q]], %c1_i32
  // CHECK-NEXT: scf.yield %[[QNEXT]], %[[KEYLOOP]]
  // The other warps count tasks from 0.
  // CHECK: scf.for {{.*}} iter_args(%{{.*}} = %c0_i32) -> (i32)
  // CHECK: tile.mbarrier_wait %[[QEMPTY]]
  // CHECK-NOT: tile.tma_load
  // Consumers wait for the queries before the loop that contains their uses; no lane may still be waiting
  // when a lane releases them.
  // CHECK: scf.for {{.*}} iter_args(%[[Q:.*]] = %c0_i32, %[[K:.*]] = %c0_i32)
  // CHECK-NEXT: %[[STAGE:.*]] = tile.from_lane
  // CHECK-NEXT: %{{.*}}, %[[PARITY:.*]] = tile.ring_position %[[Q]] of 1
  // CHECK-NEXT: tile.mbarrier_wait %[[QFULL]][%[[STAGE]]] parity %[[PARITY]]
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: %[[QUERY:.*]] = tile.ring_stage %[[QUERIES]][%[[STAGE]]]
  // CHECK-NEXT: %[[BRANCH:.*]] = scf.if
  // CHECK-NEXT: %[[USED:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[K]])
  // CHECK: tile.mbarrier_wait %[[KFULL]]
  // CHECK-NEXT: %[[KEY:.*]] = tile.ring_stage %[[KEYS]]
  // CHECK-NEXT: tile.start_mma %[[QUERY]] at %{{.*}}, %[[KEY]]
  // CHECK-NEXT: tile.wait_mmas
  // CHECK-NEXT: tile.ring_position
  // CHECK-NEXT: tile.arrive %[[KEMPTY]]
  // CHECK: scf.yield %[[USED]]
  // Unused tiles: all lanes have seen the phase before one ends it.
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[UNUSED:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[K]])
  // CHECK: tile.mbarrier_wait %[[KFULL]]
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: tile.ring_position
  // CHECK-NEXT: tile.arrive %[[KEMPTY]]
  // CHECK: scf.yield %[[UNUSED]]
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: %[[STAGE:.*]] = tile.from_lane
  // CHECK-NEXT: tile.arrive %[[QEMPTY]][%[[STAGE]]]
  // CHECK-NEXT: %[[QNEXT:.*]] = arith.addi %[[Q]], %c1_i32
  // CHECK-NEXT: scf.yield %[[QNEXT]], %[[BRANCH]]
  func.func @mixed(%n: i32, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64, %slots: i32, %hasRows: i1) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %queries = tile.alloc : !query_ring
    %keys = tile.alloc : !key_ring
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      %first = arith.cmpi eq, %warp, %c0 : i32
      scf.if %first {
        scf.for %task = %c0 to %n step %c1 : i32 {
          %q = tile.produce %queries (%tile: !queries) {
            tile.gather producers %task to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !queries
          } : !query_ring -> !queries
          scf.for %key = %task to %n step %c1 : i32 {
            %k = tile.produce %keys warp 0 (%tile: !keys) {
              tile.tma_load %map from %key head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
            } : !key_ring -> !keys
          }
        }
      } else {
        scf.for %task = %c0 to %n step %c1 : i32 {
          %q = tile.produce %queries (%tile: !queries) {
            tile.gather producers %task to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !queries
          } : !query_ring -> !queries
        }
      }
    } else {
      scf.for %task = %c0 to %n step %c1 : i32 {
        %q = tile.consume %queries : !query_ring -> !queries
        scf.if %hasRows {
          scf.for %key = %task to %n step %c1 : i32 {
            %k = tile.consume %keys : !key_ring -> !keys
            %started = tile.start_mma %q at %c0, %k : !queries, !keys -> !scores
            %s = tile.wait_mmas 0 of %started : !scores -> !scores
          }
        } else {
          scf.for %key = %task to %n step %c1 : i32 {
            %k = tile.consume %keys : !key_ring -> !keys
          }
        }
      }
    }
    return
  }
}
