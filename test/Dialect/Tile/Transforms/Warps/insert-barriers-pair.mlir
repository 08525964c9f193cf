// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s

// Gathered rings that a loop produces and consumes together have one counter. Both sides may have two such
// loops.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!queries = !tile.shared<query 128, feature 64, bf16>
!scores = !tile.fragment<[query 16, key 64], f32>
!key_ring = !tile.ring<2, !keys>
!query_ring = !tile.ring<2, !queries>

gpu.module @kernels {
  // CHECK-LABEL: @pair
  // CHECK: scf.for {{.*}} iter_args(%[[Q:.*]] = %c0_i32, %[[T0:.*]] = %c0_i32)
  // CHECK: %[[BOTH:.*]] = scf.if %{{.*}} -> (i32) {
  // CHECK-NEXT: %[[ONE:.*]] = scf.for {{.*}} iter_args(%[[T:.*]] = %[[T0]]) -> (i32)
  // CHECK-NEXT: tile.ring_position %[[T]] of 2
  // CHECK: tile.arrive_on_copies
  // CHECK-NEXT: tile.ring_position %[[T]] of 2
  // CHECK: tile.arrive_on_copies
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: scf.yield %[[NEXT]]
  // CHECK: scf.yield %[[ONE]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[OTHER:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[T0]]) -> (i32)
  // CHECK: scf.yield %[[OTHER]]
  // CHECK-NEXT: }
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[Q]], %c1_i32
  // CHECK-NEXT: scf.yield %[[NEXT]], %[[BOTH]]
  // The queries need no fence: the one after the keys' wait serves both.
  // CHECK: scf.for {{.*}} iter_args(%[[Q:.*]] = %c0_i32, %[[T0:.*]] = %c0_i32)
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: %[[QUERY:.*]] = tile.ring_stage
  // CHECK-NEXT: scf.for {{.*}} iter_args(%[[T:.*]] = %[[T0]]) -> (i32)
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: tile.start_mma %[[QUERY]]
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: tile.start_mma %[[QUERY]]
  // CHECK: scf.yield
  // CHECK: tile.sync warp
  // CHECK-NEXT: tile.ring_position %[[Q]] of 2
  // CHECK-NEXT: tile.arrive
  func.func @pair(%n: i32, %b: !tile.buffer<bf16>, %z: i64, %slots: i32, %which: i1) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %queries = tile.alloc : !query_ring
    %keys = tile.alloc : !key_ring
    %more = tile.alloc : !key_ring
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      scf.for %task = %c0 to %n step %c1 : i32 {
        %q = tile.produce %queries (%tile: !queries) {
          tile.gather producers %task to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !queries
        } : !query_ring -> !queries
        scf.if %which {
          scf.for %key = %task to %n step %c1 : i32 {
            %k = tile.produce %keys (%tile: !keys) {
              tile.gather producers %key to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
            } : !key_ring -> !keys
            %v = tile.produce %more (%tile: !keys) {
              tile.gather producers %key to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
            } : !key_ring -> !keys
          }
        } else {
          scf.for %key = %n to %task step %c1 : i32 {
            %k = tile.produce %keys (%tile: !keys) {
              tile.gather producers %key to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
            } : !key_ring -> !keys
            %v = tile.produce %more (%tile: !keys) {
              tile.gather producers %key to %n at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
            } : !key_ring -> !keys
          }
        }
      }
    } else {
      scf.for %task = %c0 to %n step %c1 : i32 {
        %q = tile.consume %queries : !query_ring -> !queries
        scf.for %key = %task to %n step %c1 : i32 {
          %k = tile.consume %keys : !key_ring -> !keys
          %v = tile.consume %more : !key_ring -> !keys
          %s0 = tile.start_mma %q at %c0, %k : !queries, !keys -> !scores
          %s1 = tile.wait_mmas 0 of %s0 : !scores -> !scores
          %o0 = tile.start_mma %q at %c0, %v plus %s1 : !queries, !keys, !scores -> !scores
          %o1 = tile.wait_mmas 0 of %o0 : !scores -> !scores
        }
      }
    }
    return
  }
}
