// RUN: attn-opt %s --allow-unregistered-dialect -split-input-file -verify-diagnostics --tile-specialize-warps

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>
gpu.module @kernels {
  // expected-error @+1 {{expected a schedule that says producers, producer_registers and consumer_registers: the kernel fills rings}}
  func.func @registers() attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    %k = tile.produce %ring (%t: !k) {
    } : !tile.ring<2, !k> -> !k
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  // expected-error @+1 {{expected a kernel of one block that returns nothing: its warps part}}
  func.func @returns(%n: i32) -> i32 attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    %k = tile.produce %ring (%t: !k) {
    } : !tile.ring<2, !k> -> !k
    return %n : i32
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @branch(%n: i32, %c: i1) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    scf.for %i = %n to %n step %n : i32 {
      scf.if %c {
        // expected-error @+1 {{expected nothing but scf.for around a fill, got scf.if: all warps must know how often a ring is filled}}
        %k = tile.produce %ring (%t: !k) {
        } : !tile.ring<2, !k> -> !k
      }
    }
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @warp() attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    // expected-error @+1 {{expected a warp from 0 to 3, one of the schedule's producers, got 4}}
    %k = tile.produce %ring warp 4 (%t: !k) {
    } : !tile.ring<2, !k> -> !k
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @ring(%n: i32) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    // expected-error @+1 {{expected the same warps to make all fills of a ring}}
    %k0 = tile.produce %ring warp 0 (%t: !k) {
    } : !tile.ring<2, !k> -> !k
    scf.for %i = %n to %n step %n : i32 {
      // expected-note @+1 {{another fill}}
      %k1 = tile.produce %ring warp 1 (%t: !k) {
      } : !tile.ring<2, !k> -> !k
    }
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @scope(%n: i32, %keys: !tile.buffer<bf16>, %wide: i64) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    %k = tile.produce %ring warp 0 (%t: !k) {
      // expected-error @+1 {{expected scope warp, as the fill around says, got producers}}
      tile.gather producers %n to %n at %n from %keys origins %wide strides [64] into %t : !tile.buffer<bf16> -> !k
    } : !tile.ring<2, !k> -> !k
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @fetch(%n: i32, %map: !tile.tensor_map<4>) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    %k = tile.produce %ring (%t: !k) {
      // expected-error @+1 {{is one warp's, and the fill around is all producers': expected it to say which}}
      tile.tma_load %map from %n head %n lines 32 into %t : !tile.tensor_map<4> -> !k
    } : !tile.ring<2, !k> -> !k
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!lhs = !tile.fragment<[key 16, feature 64], bf16, lhs>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @tile(%n: i32, %map: !tile.tensor_map<4>) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    scf.for %i = %n to %n step %n iter_args(%slot = %n) -> i32 : i32 {
      // expected-error @+1 {{has a tile that fills depend on: warps that fill cannot use tiles}}
      %k = tile.produce %ring warp 0 (%t: !k) {
        tile.tma_load %map from %slot head %n lines 32 into %t : !tile.tensor_map<4> -> !k
      } : !tile.ring<2, !k> -> !k
      %lines = tile.load %k at %n : !k -> !lhs
      %next = "test.next"(%lines) : (!lhs) -> i32
      scf.yield %next : i32
    }
    return
  }
}

// -----

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
gpu.module @kernels {
  func.func @effects(%n: i32, %map: !tile.tensor_map<4>) attributes {tile.schedule = #schedule} {
    %ring = tile.alloc : !tile.ring<2, !k>
    scf.for %i = %n to %n step %n : i32 {
      // expected-error @+1 {{may have effects, and a fill depends on it: both who fills and who uses the tile would do it}}
      %slot = "test.draw"() : () -> i32
      %k = tile.produce %ring warp 0 (%t: !k) {
        tile.tma_load %map from %slot head %n lines 32 into %t : !tile.tensor_map<4> -> !k
      } : !tile.ring<2, !k> -> !k
    }
    return
  }
}
