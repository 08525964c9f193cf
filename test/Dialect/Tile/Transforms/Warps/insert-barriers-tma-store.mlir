// RUN: attn-opt %s --tile-insert-barriers --tile-fold-constants | FileCheck %s
// RUN: sed 's/ring<2/ring<3/' %s | attn-opt --tile-insert-barriers --tile-fold-constants | FileCheck %s --check-prefix=THREE

// A tile that a TMA store reads: its stage is released when the next tile is consumed.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!queries = !tile.shared<query 128, feature 64, bf16, boxes 64>
!rows = !tile.shared<query 64, feature 64, bf16>
!keys = !tile.shared<key 64, feature 64, bf16>
!scores = !tile.fragment<[query 16, key 64], f32>
!ring = !tile.ring<2, !queries>

gpu.module @kernels {
  // CHECK-LABEL: @send
  // CHECK: %[[FULL:.*]] = tile.alloc : !tile.barriers<2>
  // CHECK-NEXT: %[[EMPTY:.*]] = tile.alloc : !tile.barriers<2>
  // The first consumed tile releases a stage that was never produced: the last one, whose rounds begin a tile
  // late.
  // CHECK: scf.for {{.*}} iter_args(%[[T:.*]] = %c0_i32)
  // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[T]] of 2
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: %[[LATER:.*]] = arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: %{{.*}}, %[[PARITY:.*]] = tile.ring_position %[[LATER]] of 2
  // CHECK-NEXT: tile.mbarrier_wait %[[EMPTY]][%[[STAGE]]] before parity %[[PARITY]]
  // CHECK: scf.for {{.*}} iter_args(%[[T:.*]] = %c0_i32)
  // CHECK-NEXT: tile.wait_tma_stores
  // CHECK-NEXT: tile.sync warp
  // CHECK-NEXT: %[[OTHER:.*]] = arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: %[[FREE:.*]], %{{.*}} = tile.ring_position %[[OTHER]] of 2
  // CHECK-NEXT: tile.arrive %[[EMPTY]][%[[FREE]]]
  // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[T]] of 2
  // CHECK: tile.mbarrier_wait %[[FULL]][%[[STAGE]]]
  // CHECK-NEXT: %[[TILE:.*]] = tile.ring_stage %{{.*}}[%[[STAGE]]]
  // CHECK-NEXT: scf.for
  // CHECK-NOT: tile.arrive
  // CHECK: tile.overlay %[[TILE]]
  // CHECK: tile.tma_store
  // CHECK-NEXT: }
  // CHECK-NEXT: arith.addi %[[T]], %c1_i32
  // CHECK-NEXT: scf.yield
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.wait_tma_stores
  // With three stages it is that of the previous tile, too.
  // THREE: scf.for {{.*}} iter_args(%[[T:.*]] = %c0_i32)
  // THREE: %[[LATER:.*]] = arith.addi %[[T]], %c1_i32
  // THREE-NEXT: tile.ring_position %[[LATER]] of 3
  // THREE: scf.for {{.*}} iter_args(%[[T:.*]] = %c0_i32)
  // THREE: %[[OTHER:.*]] = arith.addi %[[T]], %c2_i32
  // THREE-NEXT: %[[FREE:.*]], %{{.*}} = tile.ring_position %[[OTHER]] of 3
  // THREE-NEXT: tile.arrive %{{.*}}[%[[FREE]]]
  func.func @send(%n: i32, %map: !tile.tensor_map<4>, %k: !keys, %o: !tile.fragment<[query 16, feature 64], f32>, %sends: i1) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %ring = tile.alloc : !ring
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      scf.for %task = %c0 to %n step %c1 : i32 {
        %q = tile.produce %ring warp 2 (%tile: !queries) {
          tile.tma_load %map from %task head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !queries
        } : !ring -> !queries
      }
    } else {
      scf.for %task = %c0 to %n step %c1 : i32 {
        %q = tile.consume %ring : !ring -> !queries
        scf.for %key = %c0 to %task step %c1 : i32 {
          %started = tile.start_mma %q at %c0, %k : !queries, !keys -> !scores
          %s = tile.wait_mmas 0 of %started : !scores -> !scores
        }
        %box = tile.overlay %q at %c0 : !queries -> !rows
        tile.stage %o into %box at %c0 : !tile.fragment<[query 16, feature 64], f32> -> !rows
        tile.fence_async
        scf.if %sends {
          tile.tma_store %box to %map from %task head %c0 : !rows -> !tile.tensor_map<4>
        }
      }
    }
    return
  }
}
