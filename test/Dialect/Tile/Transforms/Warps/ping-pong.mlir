// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas --tile-ping-pong | FileCheck %s

!q = !tile.shared<query 128, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#turns = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, ping_pong = true>

gpu.module @kernels {
  // The last warpgroup gives the first its first turn. In a rotated loop a turn lasts from the wait for the
  // first MMA's tile until all MMAs of the iteration are started, on both sides of the branch. In the end a
  // turn is left over.
  // CHECK-LABEL: func.func @rotated
  // CHECK: %[[WARP:.*]] = tile.warp_id
  // CHECK: %[[CONSUMER:.*]] = arith.subi %[[WARP]], %c4_i32
  // CHECK: %[[GROUP:.*]] = arith.divui %[[CONSUMER]], %c4_i32
  // CHECK: %[[ISLAST:.*]] = arith.cmpi eq, %[[GROUP]], %c1_i32
  // CHECK-NEXT: scf.if %[[ISLAST]] {
  // CHECK: %[[NEXT:.*]] = arith.addi %[[GROUP]], %c1_i32
  // CHECK: %[[MOD:.*]] = arith.remui %[[NEXT]], %c2_i32
  // CHECK: %[[BARRIER:.*]] = arith.addi %[[MOD]], %c1_i32
  // CHECK-NEXT: tile.named_barrier_arrive %[[BARRIER]] threads 256
  // CHECK-NEXT: }
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: %[[MINE:.*]] = arith.addi %[[GROUP]], %c1_i32
  // CHECK-NEXT: tile.named_barrier_sync %[[MINE]] threads 256
  // CHECK-NEXT: tile.mbarrier_wait
  // CHECK-NEXT: tile.start_mma
  // CHECK-NEXT: scf.if
  // CHECK: tile.start_mma
  // CHECK: arith.remui
  // CHECK: tile.named_barrier_arrive %{{.*}} threads 256
  // CHECK-NEXT: tile.wait_mmas 1
  // CHECK: } else {
  // CHECK: tile.named_barrier_arrive %{{.*}} threads 256
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK: }
  // CHECK-NOT: tile.named_barrier_arrive
  // CHECK-NOT: tile.named_barrier_sync
  // CHECK: tile.wait_tma_stores
  // CHECK: %[[ISFIRST:.*]] = arith.cmpi eq, %[[GROUP]], %c0_i32
  // CHECK-NEXT: scf.if %[[ISFIRST]] {
  // CHECK: tile.named_barrier_sync %{{.*}} threads 256
  // CHECK-NEXT: }
  // CHECK-NEXT: return
  func.func @rotated(%q: !q, %k: !tile, %full: !tile.barriers<2>, %n: i32, %i: i32, %o: !o)
      attributes {tile.schedule = #turns} {
    %warp = tile.warp_id : i32
    %out = scf.for %task = %i to %n step %i iter_args(%in = %o) -> !o : i32 {
      tile.mbarrier_wait %full[%i] parity %task : !tile.barriers<2>
      %result = scf.for %key = %i to %n step %i iter_args(%acc = %in) -> !o : i32 {
        tile.mbarrier_wait %full[%i] parity %i : !tile.barriers<2>
        %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
        %s = tile.wait_mmas 0 of %s0 : !s -> !s
        %p = tile.cast %s : !s -> !p
        %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
        %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
        scf.yield %o1 : !o
      }
      scf.yield %result : !o
    }
    tile.wait_tma_stores
    return
  }
}
