// RUN: attn-opt %s --allow-unregistered-dialect -split-input-file -verify-diagnostics --tile-specialize-warps

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>
gpu.module @kernels {
  // expected-error @+1 {{expected a schedule with producers, producer_registers and consumer_registers: the kernel has a tile.produce}}
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
  // expected-error @+1 {{expected a kernel of one block that returns nothing: its warps split into roles}}
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
        // expected-error @+1 {{expected only scf.for around a tile.produce, got scf.if: all warps must agree on the number of tiles}}
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
    // expected-error @+1 {{expected the same warps to produce all tiles of a ring}}
    %k0 = tile.produce %ring warp 0 (%t: !k) {
    } : !tile.ring<2, !k> -> !k
    scf.for %i = %n to %n step %n : i32 {
      // expected-note @+1 {{another producer}}
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
      // expected-error @+1 {{expected scope warp, that of the enclosing tile.produce, got producers}}
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
      // expected-error @+1 {{needs `warp` on the enclosing tile.produce: a TMA load is issued by one warp}}
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
      // expected-error @+1 {{has a tile that a tile.produce depends on: producers cannot use tiles}}
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
      // expected-error @+1 {{may have effects, and a producer warp needs it: both producers and consumers would do it}}
      %slot = "test.draw"() : () -> i32
      %k = tile.produce %ring warp 0 (%t: !k) {
        tile.tma_load %map from %slot head %n lines 32 into %t : !tile.tensor_map<4> -> !k
      } : !tile.ring<2, !k> -> !k
    }
    return
  }
}
