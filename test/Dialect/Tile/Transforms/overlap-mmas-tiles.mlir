// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<1, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 1, blocks = 1, split_keys = false, query_in_registers = false>
#mma = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 1, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // Both MMAs read one tile. Released an iteration later, it would be the one that the producer needs for the
  // next.
  // CHECK-LABEL: func.func @one_tile
  // CHECK-NOT: scf.if
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK-NEXT: tile.arrive
  func.func @one_tile(%q: !q, %ring: !ring, %full: !tile.barriers<1>, %empty: !tile.barriers<1>, %n: i32, %i: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma} {
    %out:2 = scf.for %key = %i to %n step %i iter_args(%acc = %o, %t = %i) -> (!o, i32) : i32 {
      tile.mbarrier_wait %full[%i] parity %t : !tile.barriers<1>
      %k = tile.ring_stage %ring[%i] : !ring -> !tile
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %empty[%i] : !tile.barriers<1>
      %next = arith.addi %t, %i : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }

  // Tiles outside of rings need no waits; the first MMA may have two starts; a converted operand moves whole.
  // CHECK-LABEL: func.func @no_rings
  // CHECK: scf.for
  // CHECK: %[[A:.*]] = tile.start_mma
  // CHECK-NEXT: %[[B:.*]] = tile.start_mma {{.*}} plus %[[A]]
  // CHECK-NEXT: %[[DOTS:.*]]:2 = scf.if
  // CHECK: tile.wait_mmas 1 of %[[B]]
  // CHECK: tile.wait_mmas 0 of %[[DOTS]]#1
  // CHECK-NEXT: tile.cast
  // CHECK-NEXT: tile.convert
  // CHECK-NEXT: scf.yield
  func.func @no_rings(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %a = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %b = tile.start_mma %q at %i, %k plus %a : !q, !tile, !s -> !s
      %s = tile.wait_mmas 0 of %b : !s -> !s
      %c = tile.cast %s : !s -> !p
      %p = tile.convert %c : !p -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // If the first tile is not gathered and brings no fence, the second keeps its own.
  // CHECK-LABEL: func.func @own_fence
  // CHECK: scf.for
  // CHECK: tile.start_mma
  // CHECK-NEXT: scf.if
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.start_mma
  func.func @own_fence(%q: !q, %k: !tile, %full: !tile.barriers<1>, %empty: !tile.barriers<1>, %n: i32, %i: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      tile.mbarrier_wait %full[%i] parity %i : !tile.barriers<1>
      tile.fence_async
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %empty[%i] : !tile.barriers<1>
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // Other kernels are unchanged.
  // CHECK-LABEL: func.func @on_mma
  // CHECK-NOT: scf.if
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK-NOT: scf.if
  func.func @on_mma(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o) -> !o attributes {tile.schedule = #mma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }
}
