// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-insert-barriers

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @filled(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // expected-error @+1 {{is a ring that is produced and not consumed}}
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
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
  func.func @taken(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // expected-error @+1 {{is a ring that is consumed and not produced}}
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
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
  func.func @argument(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64, %ring: !ring) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected a ring that the kernel's body allocates}}
        %t = tile.produce %ring warp 0 (%tile: !keys) {
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
  func.func @used(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{has uses in the producer: --tile-specialize-warps separates them}}
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
        tile.clear %t from %c0 : !keys
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
  func.func @twice(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected one use of the ring per block}}
        %k = tile.consume %ring : !ring -> !keys
        scf.for %j = %c0 to %n step %c1 : i32 {
          // expected-note @+1 {{found here}}
          %more = tile.consume %ring : !ring -> !keys
        }
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
  func.func @region(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.execute_region {
          // expected-error @+1 {{expected to be in loops and branches alone, found scf.execute_region}}
          %k = tile.consume %ring : !ring -> !keys
          scf.yield
        }
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
  func.func @carried(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected its uses in the block that consumes the tile, not after it}}
        %k = tile.consume %ring : !ring -> !keys
        %last = scf.for %j = %c0 to %n step %c1 iter_args(%tile = %k) -> (!keys) : i32 {
          scf.yield %tile : !keys
        }
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
  func.func @some_sent(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.if %produces {
          %k = tile.consume %ring : !ring -> !keys
          %box = tile.overlay %k at %c0 : !keys -> !keys
          tile.tma_store %box to %map from %c0 head %c0 : !keys -> !tile.tensor_map<4>
        } else {
          // expected-error @+1 {{expected TMA stores of all tiles of a ring, or of none}}
          %k = tile.consume %ring : !ring -> !keys
        }
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
  func.func @sent_once(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.produce %ring warp 0 (%tile: !keys) {
          tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      // expected-error @+1 {{expected a loop around a tile that a TMA store reads}}
      %k = tile.consume %ring : !ring -> !keys
      %box = tile.overlay %k at %c0 : !keys -> !keys
      tile.tma_store %box to %map from %c0 head %c0 : !keys -> !tile.tensor_map<4>
    }
    return
  }
}

// -----

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @same_warps(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.for %i = %c0 to %n step %c1 : i32 {
      // expected-error @+1 {{is of a ring that the same warps consume}}
      %t = tile.produce %ring warp 0 (%tile: !keys) {
        tile.tma_load %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
      } : !ring -> !keys
    }
    scf.for %i = %c0 to %n step %c1 : i32 {
      // expected-note @+1 {{consumed here}}
      %k = tile.consume %ring : !ring -> !keys
    }
    return
  }
}
