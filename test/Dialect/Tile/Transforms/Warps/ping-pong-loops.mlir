// RUN: attn-opt %s -allow-unregistered-dialect --tile-ping-pong | FileCheck %s

!q = !tile.shared<query 128, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!barriers = !tile.barriers<2>
!s = !tile.fragment<[query 16, key 64], f32>
#turns = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, ping_pong = true>
#none = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, ping_pong = false>

gpu.module @kernels {
  // Warpgroups without rows take their turns, too. For them a turn replaces all waits.
  // CHECK-LABEL: func.func @takes
  // CHECK: scf.if
  // CHECK: tile.named_barrier_arrive
  // CHECK: scf.for
  // CHECK: scf.if
  // CHECK: scf.for
  // CHECK: tile.named_barrier_sync
  // CHECK-NEXT: tile.mbarrier_wait
  // CHECK-NEXT: tile.ring_stage
  // CHECK-NEXT: tile.start_mma
  // CHECK: tile.named_barrier_arrive
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK-NEXT: tile.arrive
  // CHECK: } else {
  // CHECK-NEXT: scf.for {{.*}} iter_args(%[[T:.*]] = %{{.*}})
  // CHECK-NEXT: %[[SLOT:.*]] = arith.remui %[[T]], %{{.*}}
  // CHECK-NEXT: arith.constant
  // CHECK-NEXT: arith.addi
  // CHECK-NEXT: tile.named_barrier_sync
  // CHECK-NOT: tile.mbarrier_wait
  // CHECK: tile.named_barrier_arrive
  // CHECK-NEXT: tile.arrive %{{.*}}[%[[SLOT]]]
  // CHECK-NEXT: arith.addi
  // CHECK-NEXT: scf.yield
  // CHECK: tile.named_barrier_sync
  func.func @takes(%q: !q, %ring: !ring, %full: !barriers, %empty: !barriers, %n: i32, %i: i32, %has: i1)
      attributes {tile.schedule = #turns} {
    scf.for %task = %i to %n step %i : i32 {
      scf.if %has {
        %a = scf.for %key = %i to %n step %i iter_args(%t = %i) -> i32 : i32 {
          tile.mbarrier_wait %full[%t] parity %t : !barriers
          %k = tile.ring_stage %ring[%t] : !ring -> !tile
          %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
          %s = tile.wait_mmas 0 of %s0 : !s -> !s
          tile.arrive %empty[%t] : !barriers
          %next = arith.addi %t, %i : i32
          scf.yield %next : i32
        }
      } else {
        %b = scf.for %key = %i to %n step %i iter_args(%t = %i) -> i32 : i32 {
          %slot = arith.remui %t, %n : i32
          %parity = arith.divui %t, %n : i32
          tile.mbarrier_wait %full[%slot] parity %parity : !barriers
          tile.sync warp
          tile.arrive %empty[%slot] : !barriers
          %next = arith.addi %t, %i : i32
          scf.yield %next : i32
        }
      }
    }
    return
  }

  // A warpgroup that uses a tile without an MMA waits for the tile, after the turn.
  // CHECK-LABEL: func.func @reads
  // CHECK: tile.named_barrier_arrive
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: tile.named_barrier_sync
  // CHECK: tile.named_barrier_arrive
  // CHECK-NEXT: tile.mbarrier_wait
  // CHECK-NEXT: "test.use"
  // CHECK: scf.for
  // CHECK: tile.named_barrier_sync
  // CHECK-NEXT: tile.start_mma
  // CHECK: tile.named_barrier_arrive
  // CHECK-NEXT: tile.wait_mmas
  func.func @reads(%q: !q, %k: !tile, %full: !barriers, %n: i32, %i: i32) attributes {tile.schedule = #turns} {
    scf.for %task = %i to %n step %i : i32 {
      scf.for %key = %i to %n step %i : i32 {
        tile.mbarrier_wait %full[%i] parity %i : !barriers
        "test.use"(%k) : (!tile) -> ()
      }
      scf.for %key = %i to %n step %i : i32 {
        %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
        %s = tile.wait_mmas 0 of %s0 : !s -> !s
      }
    }
    return
  }

  // CHECK-LABEL: func.func @without_turns
  // CHECK-NOT: tile.named_barrier_sync
  // CHECK-NOT: tile.named_barrier_arrive
  func.func @without_turns(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #none} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
    }
    return
  }
}
