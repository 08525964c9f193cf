// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-insert-barriers

#schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
!keys = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !keys>

gpu.module @kernels {
  func.func @filled(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // expected-error @+1 {{is a ring that is filled and not taken}}
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
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
    // expected-error @+1 {{is a ring that is taken and not filled}}
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{has uses where it is filled: --tile-specialize-warps parts them}}
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
        tile.clear %t from %c0 : !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected nothing else of its ring in the block}}
        %k = tile.take %ring : !ring -> !keys
        scf.for %j = %c0 to %n step %c1 : i32 {
          // expected-note @+1 {{found here}}
          %more = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.execute_region {
          // expected-error @+1 {{expected to be in loops and branches alone, found scf.execute_region}}
          %k = tile.take %ring : !ring -> !keys
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
  func.func @mixed(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.if %produces {
          %t = tile.fill %ring warp 0 (%tile: !keys) {
            tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          } : !ring -> !keys
        } else {
          // expected-error @+1 {{expected all fills of a ring to gather, or all to fetch}}
          %t = tile.fill %ring (%tile: !keys) {
            tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
          } : !ring -> !keys
        }
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{expected a fetch, or gathers}}
        %t = tile.fill %ring (%tile: !keys) {
          %x = arith.addi %i, %n : i32
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{expected a fetch, or gathers}}
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          tile.gather warp %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{expected one fetch on each way through its region}}
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          scf.if %produces {
            tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          }
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{expected one fetch on each way through its region}}
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          scf.for %j = %c0 to %n step %c1 : i32 {
            tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          }
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring (%tile: !keys) {
          // expected-error @+1 {{expected scope producers in a tile.fill}}
          tile.gather block %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected no barriers in a tile.fill}}
          tile.fetch %map from %c0 head %c0 lines 64 into %tile on %full[%c0] : !tile.tensor_map<4> -> !keys, !tile.barriers<2>
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
  func.func @two_clears(%n: i32, %produces: i1, %map: !tile.tensor_map<4>, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #schedule} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !ring
    scf.if %produces {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          tile.clear %tile from %n : !keys
          // expected-error @+1 {{is the second of a tile.fill}}
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring (%tile: !keys) {
          tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
          // expected-error @+1 {{expected to clear lines of the tile that a fetch beside it fills}}
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected to be the last operation of a tile.fill}}
          tile.clear %tile from %n : !keys
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
          // expected-error @+1 {{expected pure operations between a fetch and a clear}}
          tile.sync warp
          tile.clear %tile from %n : !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        // expected-error @+1 {{expected its uses in the block that takes the tile, not in what follows it}}
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        scf.if %produces {
          %k = tile.take %ring : !ring -> !keys
          %box = tile.overlay %k at %c0 : !keys -> !keys
          tile.send %box to %map from %c0 head %c0 : !keys -> !tile.tensor_map<4>
        } else {
          // expected-error @+1 {{expected all tiles of a ring to be sent, or none}}
          %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      // expected-error @+1 {{expected a loop around a tile that is sent}}
      %k = tile.take %ring : !ring -> !keys
      %box = tile.overlay %k at %c0 : !keys -> !keys
      tile.send %box to %map from %c0 head %c0 : !keys -> !tile.tensor_map<4>
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
      // expected-error @+1 {{is of a ring whose tiles the same warps take}}
      %t = tile.fill %ring warp 0 (%tile: !keys) {
        tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
      } : !ring -> !keys
    }
    scf.for %i = %c0 to %n step %c1 : i32 {
      // expected-note @+1 {{taken here}}
      %k = tile.take %ring : !ring -> !keys
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
        // expected-error @+1 {{fetches: expected the number of the only warp that does}}
        %t = tile.fill %ring (%tile: !keys) {
          tile.fetch %map from %c0 head %c0 lines 64 into %tile : !tile.tensor_map<4> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
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
        %t = tile.fill %ring warp 0 (%tile: !keys) {
          // expected-error @+1 {{expected scope warp in a tile.fill of one warp}}
          tile.gather producers %c0 to %n at %n from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
        } : !ring -> !keys
      }
    } else {
      scf.for %i = %c0 to %n step %c1 : i32 {
        %k = tile.take %ring : !ring -> !keys
      }
    }
    return
  }
}
