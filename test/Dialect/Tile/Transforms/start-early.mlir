// RUN: attn-opt %s -allow-unregistered-dialect --tile-start-early | FileCheck %s

// If warps sync in a loop, the next iteration's first MMA is started before the barrier.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<3, !tile>
!wide = !tile.shared<key 128, feature 64, bf16>
!wide_ring = !tile.ring<3, !wide>
!s = !tile.fragment<[query 16, key 64], f32>
!ws = !tile.fragment<[query 16, key 128], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 3, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @gradient
  // CHECK-SAME: %[[RING:[^:]*]]: !tile.ring<3,
  // The first iteration's MMA is started and finished before the loop, if it has iterations.
  // CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[BEGIN:.*]], %[[END:[^ ]*]] :
  // CHECK-NEXT: %[[FRONT:.*]] = scf.if %[[SOME]]
  // CHECK: tile.mbarrier_wait %[[FULL:[0-9a-z_#]+]]{{\[}}%{{.*}}]
  // CHECK: %[[S0:.*]] = tile.start_mma
  // CHECK-NEXT: %[[F0:.*]] = tile.wait_mmas 0 of %[[S0]]
  // CHECK-NEXT: scf.yield %[[F0]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: tile.undefined
  // CHECK: scf.for %[[KEY:.*]] = %[[BEGIN]] to %[[END]] step %[[STEP:.*]] iter_args(%[[DV:.*]] = %{{.*}}, %[[DK:.*]] = %{{.*}}, %[[T:.*]] = %{{.*}}, %[[S:.*]] = %[[FRONT]])
  // CHECK-NOT: tile.mbarrier_wait
  // CHECK: %[[K:.*]] = tile.ring_stage %[[RING]]
  // CHECK-NEXT: %[[G0:.*]] = tile.start_mma %{{.*}}, %[[V:.*]] :
  // CHECK-NEXT: "test.weights"(%[[S]])
  // CHECK: %[[DV0:.*]] = tile.start_mma {{.*}} plus %[[DV]]
  // CHECK-NEXT: %[[G:.*]] = tile.wait_mmas 1 of %[[G0]]
  // CHECK-NEXT: "test.exchange"(%[[G]])
  // The MMA in flight that was finished with the last is finished now.
  // CHECK-NEXT: %[[DV1:.*]] = tile.wait_mmas 0 of %[[DV0]]
  // The next tile, or the last one again.
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[KEY]], %[[STEP]]
  // CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[END]]
  // CHECK: %[[ONE:.*]] = arith.select %[[MORE]], %{{.*}}, %{{.*}}
  // CHECK-NEXT: %[[T1:.*]] = arith.addi %[[T]], %[[ONE]]
  // CHECK: %[[SLOT:.*]] = arith.remui %[[T1]],
  // CHECK: tile.mbarrier_wait %[[FULL]][%[[SLOT]]] parity
  // CHECK: %[[K1:.*]] = tile.ring_stage %[[RING]][%[[SLOT]]]
  // CHECK-NEXT: %[[AHEAD:.*]] = tile.start_mma %{{.*}}, %[[K1]] :
  // CHECK-NEXT: tile.fence_async
  // CHECK-NEXT: tile.wait_tma_stores
  // CHECK-NEXT: tile.named_barrier_sync
  // CHECK-NEXT: %[[C0:.*]] = tile.start_mma
  // CHECK-NEXT: %[[DK0:.*]] = tile.start_mma %{{.*}}, %[[K]] plus %[[DK]]
  // CHECK-NEXT: %[[BOTH:.*]]:2 = tile.wait_mmas 1 of %[[C0]], %[[AHEAD]]
  // CHECK-NEXT: "test.send"(%[[BOTH]]#0)
  // CHECK-NEXT: %[[DK1:.*]] = tile.wait_mmas 0 of %[[DK0]]
  // CHECK-NEXT: tile.arrive
  // CHECK: scf.yield %[[DV1]], %[[DK1]], %{{.*}}, %[[BOTH]]#1
  func.func @gradient(%keys: !ring, %q: !q, %d: !q, %v: !tile, %full: !tile.barriers<3>, %empty: !tile.barriers<3>,
                      %begin: i32, %end: i32, %o: !o, %t0: i32) -> (!o, !o) attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %c64 = arith.constant 64 : i32
    %out:3 = scf.for %key = %begin to %end step %c64 iter_args(%dv = %o, %dk = %o, %t = %t0) -> (!o, !o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      %round = arith.divui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %round : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %g0 = tile.start_mma %d at %c0, %v : !q, !tile -> !s
      %s = tile.wait_mmas 1 of %s0 : !s -> !s
      %w = "test.weights"(%s) : (!s) -> !s
      %p = tile.cast %w : !s -> !p
      %dv0 = tile.start_mma %p, %v plus %dv : !p, !tile, !o -> !o
      %g = tile.wait_mmas 1 of %g0 : !s -> !s
      %ds = "test.exchange"(%g) : (!s) -> !p
      tile.fence_async
      tile.wait_tma_stores
      tile.named_barrier_sync %c1 threads 128
      %c = tile.start_mma %ds, %v : !p, !tile -> !o
      %dk0 = tile.start_mma %ds, %k plus %dk : !p, !tile, !o -> !o
      %sum = tile.wait_mmas 1 of %c : !o -> !o
      "test.send"(%sum) : (!o) -> ()
      %both:2 = tile.wait_mmas 0 of %dk0, %dv0 : !o, !o -> !o, !o
      tile.arrive %empty[%slot] : <3>
      %next = arith.addi %t, %c1 : i32
      scf.yield %both#1, %both#0, %next : !o, !o, i32
    }
    return %out#0, %out#1 : !o, !o
  }

  // Without a barrier, and with one sum, there is no such position.
  // CHECK-LABEL: func.func @alone
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @alone(%keys: !ring, %q: !q, %full: !tile.barriers<3>, %n: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:2 = scf.for %key = %c0 to %n step %c1 iter_args(%acc = %o, %t = %c0) -> (!o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }

  // Operands of the first MMA must be available early: a carried value is not.
  // CHECK-LABEL: func.func @depends
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @depends(%keys: !ring, %q: !q, %full: !tile.barriers<3>, %n: i32, %p0: !p, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:3 = scf.for %key = %c0 to %n step %c1 iter_args(%p = %p0, %acc = %o, %t = %c0) -> (!p, !o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %p, %k : !p, !tile -> !o
      %s = tile.wait_mmas 0 of %s0 : !o -> !o
      %p1 = "test.weights"(%s) : (!o) -> !p
      tile.fence_async
      tile.named_barrier_sync %c1 threads 128
      %o0 = tile.start_mma %p1, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %p1, %o1, %next : !p, !o, i32
    }
    return %out#1 : !o
  }

  // The tile's position does not depend on a counter.
  // CHECK-LABEL: func.func @anywhere
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @anywhere(%keys: !ring, %q: !q, %full: !tile.barriers<3>, %n: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %out = scf.for %key = %c0 to %n step %c1 iter_args(%acc = %o) -> (!o) : i32 {
      %slot = "test.slot"() : () -> i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      tile.fence_async
      tile.named_barrier_sync %c1 threads 128
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // Long tiles are unchanged.
  // CHECK-LABEL: func.func @long
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @long(%keys: !wide_ring, %q: !q, %full: !tile.barriers<3>, %n: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:2 = scf.for %key = %c0 to %n step %c1 iter_args(%acc = %o, %t = %c0) -> (!o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !wide_ring -> !wide
      %s0 = tile.start_mma %q at %c0, %k : !q, !wide -> !ws
      %s = tile.wait_mmas 0 of %s0 : !ws -> !ws
      %p = tile.cast %s : !ws -> !tile.fragment<[query 16, key 128], bf16>
      tile.fence_async
      tile.named_barrier_sync %c1 threads 128
      %o0 = tile.start_mma %p, %k plus %acc : !tile.fragment<[query 16, key 128], bf16>, !wide, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }

  // So are loops whose sums have more than 320 columns: they need the registers of the scores.
  // CHECK-LABEL: func.func @wide
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @wide(%keys: !ring, %q: !q, %full: !tile.barriers<3>, %n: i32, %o: !o, %more: !tile.fragment<[query 16, key 288], f32>) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:3 = scf.for %key = %c0 to %n step %c1 iter_args(%acc = %o, %t = %c0, %same = %more) -> (!o, i32, !tile.fragment<[query 16, key 288], f32>) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      tile.fence_async
      tile.named_barrier_sync %c1 threads 128
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next, %same : !o, i32, !tile.fragment<[query 16, key 288], f32>
    }
    return %out#0 : !o
  }

  // And loops over a ring of one stage: the next tile arrives when this one has been read.
  // CHECK-LABEL: func.func @one_stage
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @one_stage(%keys: !tile.ring<1, !tile>, %q: !q, %full: !tile.barriers<1>, %n: i32, %o: !o) -> !o attributes {tile.schedule = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 1, blocks = 1, split_keys = false, query_in_registers = false>} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %out:2 = scf.for %key = %c0 to %n step %c1 iter_args(%acc = %o, %t = %c0) -> (!o, i32) : i32 {
      %slot = arith.remui %t, %c1 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <1>
      %k = tile.ring_stage %keys[%slot] : !tile.ring<1, !tile> -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      tile.fence_async
      tile.named_barrier_sync %c1 threads 128
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }
}
