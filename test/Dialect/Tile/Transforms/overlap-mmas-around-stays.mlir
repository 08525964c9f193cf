// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s

// A loop inside another finishes its last MMA itself in three cases. The sum is used in between; it is read
// under a condition that is known only after the loop; or the next run counts from the beginning, so that the
// tile's position would be wrong.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @used_between
  // CHECK: scf.for {{.*}} iter_args(%{{[^ ]*}} = %{{[^ ]*}}, %{{[^ ]*}} = %{{[^ ]*}}) -> (!tile.fragment<[query 16, feature 64], f32>, i32)
  func.func @used_between(%q: !q, %keys: !tile.ring<2, !tile>, %values: !tile.ring<2, !tile>, %kfull: !tile.barriers<2>,
                    %kempty: !tile.barriers<2>, %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %n: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma, tile.several_ranges} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %all:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %o, %t0 = %c0) -> (!o, i32) : i32 {
      "test.use"(%sum) : (!o) -> ()
      %run:2 = scf.for %key = %c0 to %i step %c64 iter_args(%acc = %sum, %t = %t0) -> (!o, i32) : i32 {
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

  // CHECK-LABEL: func.func @asked_behind
  // CHECK: scf.for {{.*}} iter_args(%{{[^ ]*}} = %{{[^ ]*}}, %{{[^ ]*}} = %{{[^ ]*}}) -> (!tile.fragment<[query 16, feature 64], f32>, i32)
  func.func @asked_behind(%q: !q, %keys: !tile.ring<2, !tile>, %values: !tile.ring<2, !tile>, %kfull: !tile.barriers<2>,
                    %kempty: !tile.barriers<2>, %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %n: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma, tile.several_ranges} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %all:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %o, %t0 = %c0) -> (!o, i32) : i32 {
      %run:2 = scf.for %key = %c0 to %i step %c64 iter_args(%acc = %sum, %t = %t0) -> (!o, i32) : i32 {
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
      %reads = "test.ask"(%i) : (i32) -> i1
      scf.if %reads {
        "test.use"(%run#0) : (!o) -> ()
      }
      scf.yield %run#0, %run#1 : !o, i32
    }
    return %all#0 : !o
  }

  // CHECK-LABEL: func.func @counts_again
  // CHECK: scf.for {{.*}} iter_args(%{{[^ ]*}} = %{{[^ ]*}}) -> (!tile.fragment<[query 16, feature 64], f32>)
  func.func @counts_again(%q: !q, %keys: !tile.ring<2, !tile>, %values: !tile.ring<2, !tile>, %kfull: !tile.barriers<2>,
                    %kempty: !tile.barriers<2>, %vfull: !tile.barriers<2>, %vempty: !tile.barriers<2>, %n: i32, %o: !o)
      -> !o attributes {tile.schedule = #wgmma, tile.several_ranges} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %all = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %o) -> (!o) : i32 {
      %run:2 = scf.for %key = %c0 to %i step %c64 iter_args(%acc = %sum, %t = %c0) -> (!o, i32) : i32 {
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
      scf.yield %run#0 : !o
    }
    return %all : !o
  }
}
