// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s --implicit-check-not=scf.if

// Loops without a second MMA that accumulates into a carried value are unchanged.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @one_dot
  // CHECK: tile.wait_mmas 0
  // CHECK-NEXT: "test.use"
  func.func @one_dot(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #wgmma} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      "test.use"(%s) : (!s) -> ()
    }
    return
  }

  // CHECK-LABEL: func.func @nothing_carried
  // CHECK: tile.wait_mmas 0
  // CHECK: tile.wait_mmas 0
  // CHECK-NEXT: "test.use"
  func.func @nothing_carried(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #wgmma} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k : !p, !tile -> !o
      %o = tile.wait_mmas 0 of %o0 : !o -> !o
      "test.use"(%o) : (!o) -> ()
    }
    return
  }

  // The carried value is replaced, not added to.
  // CHECK-LABEL: func.func @not_added_to
  // CHECK: tile.start_mma
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  func.func @not_added_to(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %o : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // The left operand does not depend on the first MMA.
  // CHECK-LABEL: func.func @independent
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  func.func @independent(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o, %w: !s) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      "test.use"(%s) : (!s) -> ()
      %p = tile.cast %w : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // Both MMAs read the tiles of a ring of two stages: while the second kept one, no copy would be in flight.
  // CHECK-LABEL: func.func @only_ring
  // CHECK: tile.start_mma
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  func.func @only_ring(%keys: !ring, %q: !q, %full: !tile.barriers<2>, %empty: !tile.barriers<2>, %begin: i32, %end: i32,
                       %o: !o, %t0: i32) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c64 = arith.constant 64 : i32
    %out:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %o, %t = %t0) -> (!o, i32) : i32 {
      %slot = arith.remui %t, %c2 : i32
      %round = arith.divui %t, %c2 : i32
      %parity = arith.remui %round, %c2 : i32
      tile.mbarrier_wait %full[%slot] parity %parity : <2>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %empty[%slot] : <2>
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }
}
