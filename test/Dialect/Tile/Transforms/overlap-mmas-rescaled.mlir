// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s

// If a branch rescales the accumulator, the wait for it is in both branches: before the branch it would end
// up before the softmax. Gathered copies need a fence: the one for keys serves the values before them. A
// branch around the loop whose other side only takes tiles is right for a loop without iterations, too.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @rescaled
  // CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[BEGIN:.*]], %[[END:[^ ]*]] :
  // CHECK-NEXT: %[[COMPUTES:.*]] = arith.andi %[[SOME]], %[[HAS:[^ ]*]] :
  // CHECK-NEXT: scf.if %[[COMPUTES]]
  // CHECK: scf.for {{.*}} = %[[BEGIN]] to %[[END]]
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: tile.fence_async
  // CHECK: tile.start_mma
  // CHECK-NEXT: %[[DOTS:.*]]:2 = scf.if
  // CHECK: tile.mbarrier_wait
  // CHECK-NOT: tile.fence_async
  // CHECK: tile.start_mma
  // CHECK: %[[W:.*]]:2 = "test.softmax"(%[[DOTS]]#0)
  // CHECK-NEXT: %[[SCALED:.*]] = scf.if %[[W]]#1
  // CHECK-NEXT: %[[O0:.*]] = tile.wait_mmas 0 of %[[DOTS]]#1
  // CHECK-NEXT: %[[BY:.*]] = "test.scale"(%[[O0]])
  // CHECK-NEXT: scf.yield %[[BY]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[O1:.*]] = tile.wait_mmas 0 of %[[DOTS]]#1
  // CHECK-NEXT: scf.yield %[[O1]]
  // CHECK-NEXT: }
  // CHECK: tile.arrive {{.*}} if
  // CHECK-NEXT: %[[P:.*]] = tile.cast %[[W]]#0
  // CHECK: scf.yield %[[SCALED]], %{{.*}}, %[[P]]
  // CHECK-NEXT: }
  // CHECK: tile.mbarrier_wait
  // CHECK-NEXT: tile.fence_async
  // CHECK: tile.start_mma
  // CHECK: } else {
  // CHECK-NEXT: scf.for {{.*}} = %[[BEGIN]] to %[[END]]
  // CHECK-NEXT: "test.take"
  func.func @rescaled(%q: !q, %keys: !tile.ring<1, !tile>, %values: !tile.ring<1, !tile>, %kfull: !tile.barriers<1>,
                      %kempty: !tile.barriers<1>, %vfull: !tile.barriers<1>, %vempty: !tile.barriers<1>, %begin: i32,
                      %end: i32, %o: !o, %t0: i32, %rows: i1) -> !o attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c64 = arith.constant 64 : i32
    %out:2 = scf.if %rows -> (!o, i32) {
      %in:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %o, %t = %t0) -> (!o, i32) : i32 {
        %parity = arith.remui %t, %c2 : i32
        tile.mbarrier_wait %kfull[%c0] parity %parity : !tile.barriers<1>
        tile.fence_async
        %k = tile.ring_stage %keys[%c0] : !tile.ring<1, !tile> -> !tile
        %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
        %s = tile.wait_mmas 0 of %s0 : !s -> !s
        tile.arrive %kempty[%c0] : !tile.barriers<1>
        %w, %moved = "test.softmax"(%s) : (!s) -> (!s, i1)
        %scaled = scf.if %moved -> !o {
          %by = "test.scale"(%acc) : (!o) -> !o
          scf.yield %by : !o
        } else {
          scf.yield %acc : !o
        }
        %p = tile.cast %w : !s -> !p
        tile.mbarrier_wait %vfull[%c0] parity %parity : !tile.barriers<1>
        tile.fence_async
        %v = tile.ring_stage %values[%c0] : !tile.ring<1, !tile> -> !tile
        %o0 = tile.start_mma %p, %v plus %scaled : !p, !tile, !o -> !o
        %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
        tile.arrive %vempty[%c0] : !tile.barriers<1>
        %next = arith.addi %t, %c1 : i32
        scf.yield %o1, %next : !o, i32
      }
      scf.yield %in#0, %in#1 : !o, i32
    } else {
      %taken = scf.for %key = %begin to %end step %c64 iter_args(%t = %t0) -> i32 : i32 {
        "test.take"() : () -> ()
        %next = arith.addi %t, %c1 : i32
        scf.yield %next : i32
      }
      scf.yield %o, %taken : !o, i32
    }
    return %out#0 : !o
  }
}
