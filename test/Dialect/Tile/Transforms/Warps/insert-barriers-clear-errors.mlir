// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-insert-barriers

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @two_clears(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          tile.clear %tile from %n : !keys
          // expected-error @+1 {{is the second clear of a tile.produce}}
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
      }
    }
    return
  }
}

// -----

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @clear_of_gather(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring (%tile: !keys) {
          tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
          // expected-error @+1 {{expected to clear lines of the tile of a TMA load in the same tile.produce}}
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
      }
    }
    return
  }
}

// -----

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @clear_first(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected to be the last operation of a tile.produce}}
          tile.clear %tile from %n : !keys
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
      }
    }
    return
  }
}

// -----

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @between(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          // expected-error @+1 {{expected pure operations between a TMA load and a clear}}
          tile.sync warp
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
      }
    }
    return
  }
}
