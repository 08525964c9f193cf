// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s

// The second MMA of an iteration runs beside the first of the next.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // The loop carries the left operand, too. The position of the second tile is computed from the previous
  // iteration's counter. The accumulator is finished before its old use, and the left operand is cast after
  // that.
  // CHECK-LABEL: func.func @two_dots
  // CHECK-SAME: (%[[Q:[^:]*]]: {{.*}}, %[[KEYS:[^:]*]]: {{.*}}, %[[VALUES:[^:]*]]: {{[^,]*, [^,]*, [^,]*, [^,]*}}, %[[KFULL:[^:]*]]: !tile.barriers<2>, %[[KEMPTY:[^:]*]]: !tile.barriers<2>, %[[VFULL:[^:]*]]: !tile.barriers<2>, %[[VEMPTY:[^:]*]]: !tile.barriers<2>, %[[BEGIN:[^:]*]]: i32, %[[END:[^:]*]]: i32, %[[O:[^:]*]]: {{.*}}, %[[T0:[^:]*]]: i32)
  // CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]]
  // CHECK-NEXT: %[[OUT:.*]]:2 = scf.if %[[SOME]]
  // CHECK-NEXT: %[[NONE:.*]] = tile.undefined : <[query 16, key 64], bf16>
  // CHECK-NEXT: %[[LOOP:.*]]:3 = scf.for %[[KEY:.*]] = %[[BEGIN]] to %[[END]] step %{{.*}} iter_args(%[[ACC:.*]] = %[[O]], %[[T:.*]] = %[[T0]], %[[LHS:.*]] = %[[NONE]])
  // CHECK-NEXT: %[[BACK:.*]] = arith.constant 1 : i32
  // CHECK-NEXT: %[[EARLIER:.*]] = arith.subi %[[T]], %[[BACK]]
  // CHECK-NEXT: %[[LATER:.*]] = arith.cmpi slt, %[[BEGIN]], %[[KEY]]
  // CHECK-NEXT: %[[SLOT:.*]] = arith.remui %[[T]],
  // CHECK: tile.mbarrier_wait %[[KFULL]][%[[SLOT]]]
  // CHECK-NEXT: %[[K:.*]] = tile.ring_stage %[[KEYS]][%[[SLOT]]]
  // CHECK-NEXT: %[[S0:.*]] = tile.start_mma %[[Q]] at %{{.*}}, %[[K]] :
  // CHECK-NEXT: %[[DOTS:.*]]:2 = scf.if %[[LATER]]
  // CHECK-NEXT: %[[SLOT1:.*]] = arith.remui %[[EARLIER]],
  // CHECK-NEXT: %[[ROUND1:.*]] = arith.divui %[[EARLIER]],
  // CHECK-NEXT: %[[PARITY1:.*]] = arith.remui %[[ROUND1]],
  // CHECK-NEXT: tile.mbarrier_wait %[[VFULL]][%[[SLOT1]]] parity %[[PARITY1]]
  // CHECK-NEXT: %[[V:.*]] = tile.ring_stage %[[VALUES]][%[[SLOT1]]]
  // CHECK-NEXT: %[[O0:.*]] = tile.start_mma %[[LHS]], %[[V]] plus %[[ACC]]
  // CHECK-NEXT: %[[S1:.*]] = tile.wait_mmas 1 of %[[S0]]
  // CHECK-NEXT: scf.yield %[[S1]], %[[O0]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[S2:.*]] = tile.wait_mmas 0 of %[[S0]]
  // CHECK-NEXT: scf.yield %[[S2]], %[[ACC]]
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.arrive %[[KEMPTY]][%[[SLOT]]]
  // CHECK-NEXT: %[[W:.*]] = "test.softmax"(%[[DOTS]]#0)
  // CHECK-NEXT: %[[O1:.*]] = tile.wait_mmas 0 of %[[DOTS]]#1
  // CHECK-NEXT: %[[SLOT2:.*]] = arith.remui %[[EARLIER]],
  // CHECK-NEXT: tile.arrive %[[VEMPTY]][%[[SLOT2]]] if %[[LATER]]
  // CHECK-NEXT: %[[P:.*]] = tile.cast %[[W]]
  // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[T]],
  // CHECK-NEXT: scf.yield %[[O1]], %[[NEXT]], %[[P]]
  // CHECK-NEXT: }
  // The last MMA comes after the loop.
  // CHECK-NEXT: %[[BACK2:.*]] = arith.constant 1 : i32
  // CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[LOOP]]#1, %[[BACK2]]
  // CHECK-NEXT: %[[SLOT3:.*]] = arith.remui %[[LAST]],
  // CHECK: tile.mbarrier_wait %[[VFULL]][%[[SLOT3]]]
  // CHECK-NEXT: %[[V3:.*]] = tile.ring_stage %[[VALUES]][%[[SLOT3]]]
  // CHECK-NEXT: %[[O3:.*]] = tile.start_mma %[[LOOP]]#2, %[[V3]] plus %[[LOOP]]#0
  // CHECK-NEXT: %[[O4:.*]] = tile.wait_mmas 0 of %[[O3]]
  // CHECK-NEXT: %[[SLOT4:.*]] = arith.remui %[[LAST]],
  // CHECK-NEXT: tile.arrive %[[VEMPTY]][%[[SLOT4]]] :
  // CHECK-NEXT: scf.yield %[[O4]], %[[LOOP]]#1
  // CHECK-NEXT: } else {
  // CHECK-NEXT: scf.yield %[[O]], %[[T0]]
  // CHECK-NEXT: }
  // CHECK-NEXT: return %[[OUT]]#0
  func.func @two_dots(%q: !q, %keys: !ring, %values: !ring, %kfull: !tile.barriers<2>, %kempty: !tile.barriers<2>,
                      %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %begin: i32, %end: i32, %o: !o, %t0: i32) -> !o
      attributes {tile.schedule = #wgmma} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c64 = arith.constant 64 : i32
    %out:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %o, %t = %t0) -> (!o, i32) : i32 {
      %slot = arith.remui %t, %c2 : i32
      %round = arith.divui %t, %c2 : i32
      %parity = arith.remui %round, %c2 : i32
      tile.mbarrier_wait %kfull[%slot] parity %parity : !tile.barriers<2>
      %k = tile.ring_stage %keys[%slot] : !ring -> !tile
      %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 of %s0 : !s -> !s
      tile.arrive %kempty[%slot] : !tile.barriers<2>
      %w = "test.softmax"(%s) : (!s) -> !s
      %p = tile.cast %w : !s -> !p
      tile.mbarrier_wait %vfull[%slot] parity %parity : !tile.barriers<2>
      %v = tile.ring_stage %values[%slot] : !ring -> !tile
      %o0 = tile.start_mma %p, %v plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
      tile.arrive %vempty[%slot] : !tile.barriers<2>
      %next = arith.addi %t, %c1 : i32
      scf.yield %o1, %next : !o, i32
    }
    return %out#0 : !o
  }
}
