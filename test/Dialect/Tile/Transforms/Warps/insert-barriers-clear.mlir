// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s

// A TMA load whose lines may have to be cleared: one more barrier, and the parity of the cleared tiles.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!values = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !values>

gpu.module @kernels {
  // CHECK-LABEL: @clear
  // CHECK-SAME: (%[[N:[^:]*]]: i32,
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<3>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: tile.init_barriers %[[FULL]], %[[EMPTY]] counts [1, 8]
  // CHECK: scf.for {{.*}} iter_args(%[[T0:.*]] = %c0_i32, %[[P0:.*]] = %c0_i32)
  // CHECK: %[[BRANCH:.*]]:2 = scf.if %{{.*}} -> (i32, i32) {
  // CHECK-NEXT: %[[LOOP:.*]]:2 = scf.for %[[KEY:.*]] = {{.*}} iter_args(%[[T:.*]] = %[[T0]], %[[P:.*]] = %[[P0]])
  // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[T]] of 2
  // CHECK-NEXT: %[[TILE:.*]] = tile.ring_stage
  // CHECK: tile.mbarrier_wait %[[EMPTY]][%[[STAGE]]]
  // CHECK-NEXT: tile.sync warp
  // The TMA load arrives at the barrier of the consumers or, for a tile with lines to clear, at the third
  // barrier.
  // CHECK-NEXT: %[[LEFT:.*]] = arith.subi %[[N]], %[[KEY]]
  // CHECK-NEXT: %[[TAIL:.*]] = arith.cmpi slt, %[[LEFT]], %c64_i32
  // CHECK-NEXT: %[[AT:.*]] = arith.select %[[TAIL]], %c2_i32, %[[STAGE]]
  // CHECK-NEXT: tile.tma_load {{.*}} into %[[TILE]] on %[[FULL]][%[[AT]]]
  // CHECK-NEXT: scf.if %[[TAIL]] {
  // CHECK-NEXT: tile.mbarrier_wait %[[FULL]][%c2_i32] parity %[[P]]
  // CHECK-NEXT: tile.clear %[[TILE]] from %[[LEFT]]
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: tile.arrive %[[FULL]][%[[STAGE]]]
  // CHECK-NEXT: }
  // CHECK-NEXT: %[[ONE:.*]] = arith.extui %[[TAIL]]
  // CHECK-NEXT: %[[PARITY:.*]] = arith.xori %[[P]], %[[ONE]]
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: scf.yield %[[NEXT]], %[[PARITY]]
  // A branch without tiles counts none.
  // CHECK: scf.yield %[[LOOP]]#0, %[[LOOP]]#1
  // CHECK-NEXT: } else {
  // CHECK-NEXT: scf.yield %[[T0]], %[[P0]]
  // CHECK-NEXT: }
  // CHECK-NEXT: scf.yield %[[BRANCH]]#0, %[[BRANCH]]#1
  // Consumers need not know about clearing.
  // CHECK: scf.for {{.*}} iter_args(%[[T0:.*]] = %c0_i32) -> (i32)
  // CHECK-NEXT: %[[LOOP:.*]] = scf.for {{.*}} iter_args(%[[T:.*]] = %[[T0]]) -> (i32)
  // CHECK: scf.yield %[[LOOP]]
  func.func @clear(%n: i32, %segments: i32, %map: !tile.tensor_map<4>) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %c64 = arith.constant 64 : i32
    %ring = tile.alloc : !ring
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      %second = arith.cmpi eq, %warp, %c1 : i32
      scf.if %second {
        scf.for %segment = %c0 to %segments step %c1 : i32 {
          %some = arith.cmpi slt, %segment, %n : i32
          scf.if %some {
            scf.for %key = %segment to %n step %c64 : i32 {
              %t = tile.produce %ring warp 1 (%tile: !values) {
                tile.tma_load %map from %key head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !values
                %left = arith.subi %n, %key : i32
                tile.clear %tile from %left : !values
              } : !ring -> !values
            }
          }
        }
      }
    } else {
      scf.for %segment = %c0 to %segments step %c1 : i32 {
        scf.for %key = %segment to %n step %c64 : i32 {
          %t = tile.consume %ring : !ring -> !values
        }
      }
    }
    return
  }
}
