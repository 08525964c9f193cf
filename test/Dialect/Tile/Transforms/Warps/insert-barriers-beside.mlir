// RUN: attn-opt %s --tile-insert-barriers --tile-allocate-shared | FileCheck %s

// With tiles outside of rings, barriers come after all tiles, so that tiles follow each other without gaps.

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>
!scores = !tile.fragment<[query 16, key 64], f32>

gpu.module @kernels {
  // CHECK-LABEL: @beside
  // CHECK-SAME: tile.shared_bytes = 49216
  // CHECK: %[[K:.*]] = tile.alloc {offset = 0 : i64} : !tile.ring<2,
  // CHECK-NEXT: %{{.*}} = tile.alloc {offset = 16384 : i64} : !tile.ring<2,
  // CHECK-NEXT: %[[V:.*]] = tile.alloc {offset = 32768 : i64} : !tile.ring<2,
  // CHECK-NEXT: %[[KFULL:.*]] = tile.alloc {offset = 49152 : i64} : !tile.barriers<2>
  // CHECK-NEXT: %[[KEMPTY:.*]] = tile.alloc {offset = 49168 : i64} : !tile.barriers<2>
  // CHECK-NEXT: %[[VFULL:.*]] = tile.alloc {offset = 49184 : i64} : !tile.barriers<2>
  // CHECK-NEXT: %[[VEMPTY:.*]] = tile.alloc {offset = 49200 : i64} : !tile.barriers<2>
  // CHECK-NEXT: tile.init_barriers %[[KFULL]], %[[KEMPTY]], %[[VFULL]], %[[VEMPTY]] counts [1, 8, 1, 8]
  func.func @beside(%n: i32, %map: !tile.tensor_map<4>, %q: !tile.shared<query 128, feature 64, bf16>) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %ring = tile.alloc : !ring
    %beside = tile.alloc : !ring
    %second = tile.alloc : !ring
    %warp = tile.warp_id : i32
    %produces = arith.cmpi slt, %warp, %c4 : i32
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %i head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
        %v = tile.produce %second warp 1 (%tile: !keys) {
          tile.tma_load %map from %i head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
        %v = tile.consume %second : !ring -> !keys
        %started = tile.start_mma %q at %c0, %k : !tile.shared<query 128, feature 64, bf16>, !keys -> !scores
        %more = tile.start_mma %q at %c0, %v plus %started : !tile.shared<query 128, feature 64, bf16>, !keys, !scores -> !scores
        %s = tile.wait_mmas 0 of %more : !scores -> !scores
      }
    }
    return
  }
}
