// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s
// RUN: sed 's/tile.schedule = #wgmma/tile.schedule = #turns/' %s | attn-opt - -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s --check-prefix=STAYS
// RUN: sed 's/, tile.several_ranges//' %s | attn-opt - -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s --check-prefix=STAYS

// A loop inside another leaves its last MMA to its next run: the outer loop carries the weights, and whether
// an MMA is pending. Its last iteration leaves none, and if the loop does not run, the MMA is done first.
// Warpgroups in ping-pong leave none, nor do kernels whose tasks see one range. Nor does a run after which
// the sum is read, which must be complete there: whether it is read is known before the run ends.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
#turns = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, ping_pong = true>

gpu.module @kernels {
  // CHECK-LABEL: func.func @ranges
  // CHECK: %[[NONE:.*]] = tile.undefined
  // CHECK: %[[FALSE:.*]] = arith.constant false
  // CHECK: %[[ALL:.*]]:4 = scf.for %[[I:.*]] = %{{.*}} to %[[RANGES:[^ ]*]] step %{{.*}} iter_args(%[[SUM:.*]] = %{{.*}}, %[[T:.*]] = %{{.*}}, %[[LEFT:.*]] = %[[NONE]], %[[PENDING:.*]] = %[[FALSE]])
  // CHECK: scf.if
  // CHECK: %[[INNER:.*]]:3 = scf.for %[[KEY:.*]] = %[[BEGIN:.*]] to %{{.*}} iter_args(%[[ACC:.*]] = %[[SUM]], %[[COUNT:.*]] = %[[T]], %[[W:.*]] = %[[LEFT]])
  // CHECK: %[[BACK:.*]] = arith.subi %[[COUNT]], %{{.*}}
  // CHECK: %[[BEHIND:.*]] = arith.cmpi slt, %[[BEGIN]], %[[KEY]]
  // CHECK: %[[LATER:.*]] = arith.ori %[[BEHIND]], %[[PENDING]]
  // CHECK: scf.if %[[LATER]]
  // CHECK: tile.start_mma %[[W]], %{{.*}} plus %[[ACC]]
  // CHECK: tile.arrive %[[VEMPTY:[a-z0-9]+]][{{.*}}] if %[[LATER]]
  // CHECK: arith.addi %[[I]],
  // CHECK: %[[MORE:.*]] = arith.cmpi slt, %{{.*}}, %[[RANGES]]
  // CHECK: %[[SO_FAR:.*]] = scf.if %[[MORE]]
  // CHECK-NEXT: scf.yield %[[INNER]]#0
  // CHECK-NEXT: } else {
  // CHECK: tile.start_mma %[[INNER]]#2, %{{.*}} plus %[[INNER]]#0
  // CHECK: tile.arrive %[[VEMPTY]]
  // CHECK: scf.yield %[[SO_FAR]], %[[INNER]]#1, %[[INNER]]#2, %[[MORE]]
  // CHECK-NEXT: } else {
  // CHECK: %[[WHOLE:.*]] = scf.if %[[PENDING]]
  // CHECK: tile.start_mma %[[LEFT]], %{{.*}} plus %[[SUM]]
  // CHECK: tile.arrive %[[VEMPTY]]
  // CHECK: scf.yield %[[WHOLE]], %[[T]], %[[NONE]], %[[FALSE]]
  // CHECK: return %[[ALL]]#0
  // STAYS-LABEL: func.func @ranges
  // STAYS: scf.for {{.*}} iter_args(%{{[^ ]*}} = %{{[^ ]*}}, %{{[^ ]*}} = %{{[^ ]*}}) -> ({{.*}}, i32)
  func.func @ranges(%q: !q, %keys: !tile.ring<2, !tile>, %values: !tile.ring<2, !tile>, %kfull: !tile.barriers<2>,
                    %kempty: !tile.barriers<2>, %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %n: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma, tile.several_ranges} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %all:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %o, %t0 = %c0) -> (!o, i32) : i32 {
      %begin, %end = "test.range"(%i) : (i32) -> (i32, i32)
      %run:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %sum, %t = %t0) -> (!o, i32) : i32 {
        %stage, %parity = tile.ring_position %t of 2
        tile.mbarrier_wait %kfull[%stage] parity %parity : !tile.barriers<2>
        %k = tile.ring_stage %keys[%stage] : !tile.ring<2, !tile> -> !tile
        %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
        %s = tile.wait_mmas 0 of %s0 : !s -> !s
        tile.arrive %kempty[%stage] : !tile.barriers<2>
        %w = "test.softmax"(%s) : (!s) -> !s
        %by = "test.scale"(%acc) : (!o) -> !o
        %p = tile.cast %w : !s -> !p
        tile.mbarrier_wait %vfull[%stage] parity %parity : !tile.barriers<2>
        %v = tile.ring_stage %values[%stage] : !tile.ring<2, !tile> -> !tile
        %o0 = tile.start_mma %p, %v plus %by : !p, !tile, !o -> !o
        %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
        tile.arrive %vempty[%stage] : !tile.barriers<2>
        %next = arith.addi %t, %c1 : i32
        scf.yield %o1, %next : !o, i32
      }
      scf.yield %run#0, %run#1 : !o, i32
    }
    return %all#0 : !o
  }

  // CHECK-LABEL: func.func @read_between
  // CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[RANGES:[^ ]*]] step %{{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[PENDING:.*]] = %{{.*}})
  // CHECK: %[[BEHIND:.*]] = arith.addi %[[I]],
  // CHECK: %[[READS:.*]] = arith.cmpi eq, %[[BEHIND]], %arg
  // CHECK: %[[BOTH:.*]]:4 = scf.if
  // CHECK: %[[INNER:.*]]:3 = scf.for
  // CHECK: %[[MORE:.*]] = arith.cmpi slt, %{{.*}}, %[[RANGES]]
  // CHECK: %[[NOT:.*]] = arith.constant false
  // CHECK: %[[LEAVES:.*]] = arith.select %[[READS]], %[[NOT]], %[[MORE]]
  // CHECK: %[[SO_FAR:.*]] = scf.if %[[LEAVES]]
  // CHECK-NEXT: scf.yield %[[INNER]]#0
  // CHECK-NEXT: } else {
  // CHECK: tile.start_mma %[[INNER]]#2, %{{.*}} plus %[[INNER]]#0
  // CHECK: scf.yield %[[SO_FAR]], %[[INNER]]#1, %[[INNER]]#2, %[[LEAVES]]
  // CHECK: scf.if %[[READS]]
  // CHECK: "test.use"(%[[BOTH]]#0)
  // STAYS-LABEL: func.func @read_between
  // STAYS: scf.for {{.*}} iter_args(%{{[^ ]*}} = %{{[^ ]*}}, %{{[^ ]*}} = %{{[^ ]*}}) -> ({{.*}}, i32)
  func.func @read_between(%q: !q, %keys: !tile.ring<2, !tile>, %values: !tile.ring<2, !tile>, %kfull: !tile.barriers<2>,
                    %kempty: !tile.barriers<2>, %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %n: i32, %o: !o, %first: i32)
      -> !o attributes {tile.schedule = #wgmma, tile.several_ranges} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %all:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %o, %t0 = %c0) -> (!o, i32) : i32 {
      %begin, %end = "test.range"(%i) : (i32) -> (i32, i32)
      %run:2 = scf.for %key = %begin to %end step %c64 iter_args(%acc = %sum, %t = %t0) -> (!o, i32) : i32 {
        %stage, %parity = tile.ring_position %t of 2
        tile.mbarrier_wait %kfull[%stage] parity %parity : !tile.barriers<2>
        %k = tile.ring_stage %keys[%stage] : !tile.ring<2, !tile> -> !tile
        %s0 = tile.start_mma %q at %c0, %k : !q, !tile -> !s
        %s = tile.wait_mmas 0 of %s0 : !s -> !s
        tile.arrive %kempty[%stage] : !tile.barriers<2>
        %w = "test.softmax"(%s) : (!s) -> !s
        %by = "test.scale"(%acc) : (!o) -> !o
        %p = tile.cast %w : !s -> !p
        tile.mbarrier_wait %vfull[%stage] parity %parity : !tile.barriers<2>
        %v = tile.ring_stage %values[%stage] : !tile.ring<2, !tile> -> !tile
        %o0 = tile.start_mma %p, %v plus %by : !p, !tile, !o -> !o
        %o1 = tile.wait_mmas 0 of %o0 : !o -> !o
        tile.arrive %vempty[%stage] : !tile.barriers<2>
        %next = arith.addi %t, %c1 : i32
        scf.yield %o1, %next : !o, i32
      }
      %behind = arith.addi %i, %c1 : i32
      %reads = arith.cmpi eq, %behind, %first : i32
      scf.if %reads {
        "test.use"(%run#0) : (!o) -> ()
      }
      scf.yield %run#0, %run#1 : !o, i32
    }
    return %all#0 : !o
  }
}
