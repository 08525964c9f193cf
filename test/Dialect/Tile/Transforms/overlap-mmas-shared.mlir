// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s

// The last MMA of an iteration reads a tile that a remaining MMA reads and waits for, as in gradients.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!single = !tile.ring<1, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // It is started in every iteration: in the first with zeros, on that iteration's tile. The wait for the
  // second remaining MMA is in branches, and values computed from the first pass through.
  // CHECK-LABEL: func.func @gradient
  // CHECK-SAME: %[[RING:[^:]*]]: !tile.ring<2,
  // CHECK: %[[ZERO:.*]] = tile.splat
  // CHECK-NEXT: %[[NONE:.*]] = tile.cast %[[ZERO]]
  // CHECK-NEXT: %[[LOOP:.*]]:3 = scf.for {{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[T:.*]] = %{{.*}}, %[[LHS:.*]] = %[[NONE]])
  // CHECK-NEXT: %[[LATER:.*]] = arith.cmpi slt
  // CHECK: %[[BACK:.*]] = arith.select %[[LATER]],
  // CHECK-NEXT: %[[EARLIER:.*]] = arith.subi %[[T]], %[[BACK]]
  // CHECK: tile.mbarrier_wait %[[FULL:.*]][%[[SLOT:.*]]] parity
  // CHECK-NEXT: %[[K:.*]] = tile.ring_stage %[[RING]][%[[SLOT]]]
  // CHECK-NEXT: %[[S:.*]] = tile.start_mma %{{.*}}, %[[K]] :
  // CHECK-NEXT: %[[G:.*]] = tile.start_mma
  // CHECK-NEXT: %[[SLOT1:.*]] = arith.remui %[[EARLIER]],
  // CHECK-NEXT: %[[K1:.*]] = tile.ring_stage %[[RING]][%[[SLOT1]]]
  // CHECK-NEXT: %[[LATE:.*]] = tile.start_mma %[[LHS]], %[[K1]] plus %[[ACC]]
  // CHECK-NEXT: %[[S1:.*]] = tile.wait_mmas 2 of %[[S]]
  // CHECK-NEXT: %[[W:.*]] = "test.weights"(%[[S1]])
  // CHECK-NEXT: %[[WAITED:.*]]:2 = scf.if %[[LATER]]
  // CHECK-NEXT: %[[ONE:.*]]:2 = tile.wait_mmas 1 of %[[G]], %[[W]]
  // CHECK-NEXT: scf.yield %[[ONE]]#0, %[[ONE]]#1
  // CHECK-NEXT: } else {
  // CHECK-NEXT: tile.wait_mmas 0 of %[[G]], %[[W]]
  // CHECK: %[[DS:.*]] = "test.gradients"(%[[WAITED]]#1, %[[WAITED]]#0)
  // CHECK-NEXT: %[[SUM:.*]] = tile.wait_mmas 0 of %[[LATE]]
  // CHECK: tile.arrive %[[EMPTY:.*]][%{{.*}}] if %[[LATER]]
  // CHECK-NEXT: %[[P:.*]] = tile.cast %[[DS]]
  // CHECK: scf.yield %[[SUM]], %{{.*}}, %[[P]]
  // CHECK: tile.start_mma %[[LOOP]]#2, %{{.*}} plus %[[LOOP]]#0
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK: tile.arrive %[[EMPTY]]
  func.func @gradient(%keys: !ring, %q: !q, %d: !q, %v: !tile, %full: !tile.barriers<2>, %empty: !tile.barriers<2>,
                      %begin: i32, %end: i32, %o: !o, %t0: i32) -> !o attributes {tile.schedule = #wgmma} {
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
      %g0 = tile.start_mma %d at %c0, %v : !q, !tile -> !s
      %s = tile.wait_mmas 1 of %s0 : !s -> !s
      %w = "test.weights"(%s) : (!s) -> !s
      %g = tile.wait_mmas 0 of %g0 : !s -> !s
      %ds = "test.gradients"(%w, %g) : (!s, !s) -> !s
      %p = tile.cast %ds : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %empty[%slot] : <2>
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }

  // With one stage the next tile could not arrive: the MMA stays.
  // CHECK-LABEL: func.func @one_stage
  // CHECK-NOT: arith.select
  // CHECK: tile.wait_mmas 1
  // CHECK: tile.start_mma
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK-NEXT: tile.arrive
  func.func @one_stage(%keys: !single, %q: !q, %d: !q, %v: !tile, %full: !tile.barriers<1>, %empty: !tile.barriers<1>,
                       %begin: i32, %end: i32, %o: !o, %t0: i32) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c64 = arith.constant 64 : i32
    %out:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %o, %t = %t0) -> (!o, i32) : i32 {
      %parity = arith.remui %t, %c2 : i32
      tile.mbarrier_wait %full[%c0] parity %parity : <1>
      %k = tile.ring_stage %keys[%c0] : !single -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %g0 = tile.start_mma %d at %c0, %v : !q, !tile -> !s
      %s = tile.wait_mmas 1 of %s0 : !s -> !s
      %g = tile.wait_mmas 0 of %g0 : !s -> !s
      %ds = "test.gradients"(%s, %g) : (!s, !s) -> !s
      %p = tile.cast %ds : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %empty[%c0] : <1>
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }
}
