// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-insert-barriers

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @mixed(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.if %produces {
          %t = tile.produce %ring warp 0 (%tile: !keys) {
            tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          } : !ring -> !keys
        } else {
          // expected-error @+1 {{expected all tiles of a ring to be gathered, or all to be loaded by TMA}}
          %t = tile.produce %ring (%tile: !keys) {
            tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
          } : !ring -> !keys
        }
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
  func.func @nothing(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected a TMA load, or gathers}}
        %t = tile.produce %ring (%tile: !keys) {
          %x = arith.addi %i, %n : i32
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
  func.func @both(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected a TMA load, or gathers}}
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          tile.gather warp %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
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
  func.func @some(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected one TMA load on each path through its region}}
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          scf.if %produces {
            tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          }
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
  func.func @repeated(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected one TMA load on each path through its region}}
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          scf.for %j = %c0 to %n step %c1 : i32 {
            tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          }
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
  func.func @scope(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring (%tile: !keys) {
          // expected-error @+1 {{expected scope producers in a tile.produce}}
          tile.gather block %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
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
  func.func @barriers(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    %full = tile.alloc : !tile.barriers<2>
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected no barriers in a tile.produce}}
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile on %full[%c0] : !tile.tensor_map<4> -> !keys, !tile.barriers<2>
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
  func.func @all_fetch(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{needs `warp`: a TMA load is issued by one warp}}
        %t = tile.produce %ring (%tile: !keys) {
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
  func.func @one_gathers(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected scope warp in a tile.produce of one warp}}
          tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
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
!codes = !tile.shared<key 64, feature 64, i8>
!keys = !tile.shared<key 64, feature 64, f16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @widened_elsewhere(%n: i32, %produces: i1, %codes: !codes, %other: !keys) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring (%tile: !keys) {
          // expected-error @+1 {{expected to widen to the tile of the enclosing tile.produce}}
          tile.widen_tile %codes into %other : !codes -> !keys
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
!codes = !tile.shared<key 64, feature 64, i8>
!keys = !tile.shared<key 64, feature 64, f16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @widened_by_one(%n: i32, %produces: i1, %codes: !codes) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected a tile.produce of all producers, without TMA loads}}
          tile.widen_tile %codes into %tile : !codes -> !keys
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
!codes = !tile.shared<key 64, feature 64, i8>
!keys = !tile.shared<key 64, feature 64, f16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @widened_or_gathered(%n: i32, %produces: i1, %codes: !codes, %b: !tile.buffer<f16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.if %produces {
          %t = tile.produce %ring (%tile: !keys) {
            tile.widen_tile %codes into %tile : !codes -> !keys
          } : !ring -> !keys
        } else {
          // expected-error @+1 {{expected all tiles of a ring to be widened, or none}}
          %t = tile.produce %ring (%tile: !keys) {
            tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<f16> -> !keys
          } : !ring -> !keys
        }
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.consume %ring : !ring -> !keys
      }
    }
    return
  }
}
