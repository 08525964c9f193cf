// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-ping-pong

#turns = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, ping_pong = true>

gpu.module @kernels {
  // expected-error @+1 {{expected one outermost loop that starts MMAs, got 0: its schedule says that warpgroups take turns}}
  func.func @no_dots(%full: !tile.barriers<2>, %n: i32, %i: i32) attributes {tile.schedule = #turns} {
    scf.for %key = %i to %n step %i : i32 {
      tile.mbarrier_wait %full[%i] parity %i : !tile.barriers<2>
    }
    return
  }
}

// -----

!q = !tile.shared<query 128, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
#turns = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, ping_pong = true>

gpu.module @kernels {
  // expected-error @+1 {{expected one outermost loop that starts MMAs, got 2: its schedule says that warpgroups take turns}}
  func.func @two_loops(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #turns} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
    }
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
    }
    return
  }
}
