// RUN: attn-opt %s -allow-unregistered-dialect -split-input-file -verify-diagnostics --tile-overlap-mmas

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  func.func @operand_used_twice(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      "test.use"(%p) : (!p) -> ()
      // expected-error @+1 {{expected the left operand of an MMA that starts an iteration later to be a cast in the loop, for this MMA alone}}
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }
}

// -----

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  func.func @slot_not_counted(%q: !q, %k: !tile, %ring: !ring, %n: i32, %i: i32, %o: !o) -> !o
      attributes {tile.schedule = #wgmma} {
    %out:2 = scf.for %key = %i to %n step %i iter_args(%acc = %o, %slot = %i) -> (!o, i32) : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %v = tile.ring_stage %ring[%slot] : !ring -> !tile
      // expected-error @+1 {{expected an MMA that starts an iteration later to find its tile by values that the loop carries and adds constants to}}
      %o0 = tile.start_mma %p, %v plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.muli %slot, %i : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }
}

// -----

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  func.func @slot_read(%q: !q, %k: !tile, %ring: !ring, %n: i32, %i: i32, %o: !o) -> !o
      attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %slot = "test.read"() : () -> i32
      %v = tile.ring_stage %ring[%slot] : !ring -> !tile
      // expected-error @+1 {{expected an MMA that starts an iteration later to find its tile by values that the loop carries and adds constants to}}
      %o0 = tile.start_mma %p, %v plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }
}
