// RUN: attn-opt %s -allow-unregistered-dialect --tile-start-early | FileCheck %s

// If two sums end together, the next iteration's first MMA is started between them.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<3, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 3, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @together
  // CHECK-SAME: %[[RING:[^:]*]]: !tile.ring<3,
  // CHECK: %[[FRONT:.*]] = scf.if
  // CHECK: tile.mbarrier_wait %[[FULL:[0-9a-z_#]+]]{{\[}}%{{.*}}]
  // CHECK: %[[S0:.*]] = tile.start_mma
  // CHECK-NEXT: %[[F0:.*]] = tile.wait_mmas 0 of %[[S0]]
  // CHECK-NEXT: scf.yield %[[F0]]
  // CHECK: scf.for %[[KEY:.*]] = %{{.*}} to %[[END:.*]] step %[[STEP:.*]] iter_args(%[[DV:.*]] = %{{.*}}, %[[DK:.*]] = %{{.*}}, %[[T:.*]] = %{{.*}}, %[[S:.*]] = %[[FRONT]])
  // CHECK-NOT: tile.mbarrier_wait
  // CHECK: %[[K:.*]] = tile.ring_stage %[[RING]]
  // CHECK-NEXT: %[[G0:.*]] = tile.start_mma %{{.*}}, %[[V:.*]] :
  // CHECK-NEXT: "test.weights"(%[[S]])
  // CHECK: %[[DV0:.*]] = tile.start_mma {{.*}} plus %[[DV]]
  // CHECK-NEXT: %[[G:.*]] = tile.wait_mmas 1 of %[[G0]]
  // CHECK-NEXT: "test.gradients"(%[[G]])
  // The sum in flight stays in flight.
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[KEY]], %[[STEP]]
  // CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[END]]
  // CHECK: %[[ONE:.*]] = arith.select %[[MORE]], %{{.*}}, %{{.*}}
  // CHECK-NEXT: %[[T1:.*]] = arith.addi %[[T]], %[[ONE]]
  // CHECK: %[[SLOT:.*]] = arith.remui %[[T1]],
  // CHECK: tile.mbarrier_wait %[[FULL]][%[[SLOT]]] parity
  // CHECK: %[[K1:.*]] = tile.ring_stage %[[RING]][%[[SLOT]]]
  // CHECK-NEXT: %[[AHEAD:.*]] = tile.start_mma %{{.*}}, %[[K1]] :
  // CHECK-NEXT: %[[DK0:.*]] = tile.start_mma %{{.*}}, %[[K]] plus %[[DK]]
  // CHECK-NEXT: %[[ALL:.*]]:3 = tile.wait_mmas 0 of %[[DK0]], %[[DV0]], %[[AHEAD]]
  // CHECK-NEXT: tile.arrive
  // CHECK: scf.yield %[[ALL]]#1, %[[ALL]]#0, %{{.*}}, %[[ALL]]#2
  func.func @together(%keys: !ring, %q: !q, %d: !q, %v: !tile, %full: !tile.barriers<3>, %empty: !tile.barriers<3>,
                      %n: i32, %o: !o, %t0: i32) -> (!o, !o) attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:3 = scf.for %key = %c0 to %n step %c1 iter_args(%dv = %o, %dk = %o, %t = %t0) -> (!o, !o, i32) : i32 {
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
      %ds = "test.gradients"(%g) : (!s) -> !p
      %dk0 = tile.start_mma %ds, %k plus %dk : !p, !tile, !o -> !o
      %both:2 = tile.wait_mmas 0 of %dk0, %dv0 : !o, !o -> !o, !o
      tile.arrive %empty[%slot] : <3>
      %next = arith.addi %t, %c1 : i32
      scf.yield %both#1, %both#0, %next : !o, !o, i32
    }
    return %out#0, %out#1 : !o, !o
  }

  // Sums that end one after the other, the last of them separately, are unchanged.
  // CHECK-LABEL: func.func @apart
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @apart(%keys: !ring, %q: !q, %v: !tile, %full: !tile.barriers<3>, %n: i32, %o: !o)
      -> (!o, !o) attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:3 = scf.for %key = %c0 to %n step %c1 iter_args(%dv = %o, %dk = %o, %t = %c0) -> (!o, !o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %dv0 = tile.start_mma %p, %v plus %dv : !p, !tile, !o -> !o
      %dk0 = tile.start_mma %p, %k plus %dk : !p, !tile, !o -> !o
      %dv1 = tile.wait_mmas 1 of %dv0 : !o -> !o
      %dk1 = tile.wait_mmas 0 of %dk0 : !o -> !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %dv1, %dk1, %next : !o, !o, i32
    }
    return %out#0, %out#1 : !o, !o
  }

  // After the last sum's start there is no other wait: it would also wait for the early MMA.
  // CHECK-LABEL: func.func @between
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: tile.mbarrier_wait
  // CHECK: return
  func.func @between(%keys: !ring, %q: !q, %v: !tile, %full: !tile.barriers<3>, %n: i32, %o: !o)
      -> (!o, !o) attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %out:3 = scf.for %key = %c0 to %n step %c1 iter_args(%dv = %o, %dk = %o, %t = %c0) -> (!o, !o, i32) : i32 {
      %slot = arith.remui %t, %c3 : i32
      tile.mbarrier_wait %full[%slot] parity %c0 : <3>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %g0 = tile.start_mma %p, %v : !p, !tile -> !o
      %dv0 = tile.start_mma %p, %v plus %dv : !p, !tile, !o -> !o
      %dk0 = tile.start_mma %p, %k plus %dk : !p, !tile, !o -> !o
      %g = tile.wait_mmas 2 of %g0 : !o -> !o
      "test.use"(%g) : (!o) -> ()
      %both:2 = tile.wait_mmas 0 of %dk0, %dv0 : !o, !o -> !o, !o
      %next = arith.addi %t, %c1 : i32
      scf.yield %both#1, %both#0, %next : !o, !o, i32
    }
    return %out#0, %out#1 : !o, !o
  }
}
