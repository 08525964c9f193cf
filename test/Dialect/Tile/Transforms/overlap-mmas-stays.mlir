// RUN: attn-opt %s -allow-unregistered-dialect --tile-overlap-mmas | FileCheck %s --implicit-check-not=scf.if

// Loops without a second MMA that accumulates into a carried value are unchanged.

!q = !tile.shared<query 64, feature 64, bf16>
!tile = !tile.shared<key 64, feature 64, bf16>
!ring = !tile.ring<2, !tile>
!s = !tile.fragment<[query 16, key 64], f32>
!p = !tile.fragment<[query 16, key 64], bf16>
!o = !tile.fragment<[query 16, feature 64], f32>
#wgmma = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @one_dot
  // CHECK: tile.wait_mmas 0
  // CHECK-NEXT: "test.use"
  func.func @one_dot(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #wgmma} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 %s0 : !s -> !s
      "test.use"(%s) : (!s) -> ()
    }
    return
  }

  // CHECK-LABEL: func.func @nothing_carried
  // CHECK: tile.wait_mmas 0
  // CHECK: tile.wait_mmas 0
  // CHECK-NEXT: "test.use"
  func.func @nothing_carried(%q: !q, %k: !tile, %n: i32, %i: i32) attributes {tile.schedule = #wgmma} {
    scf.for %key = %i to %n step %i : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k : !p, !tile -> !o
      %o = tile.wait_mmas 0 %o0 : !o -> !o
      "test.use"(%o) : (!o) -> ()
    }
    return
  }

  // The carried value is replaced, not added to.
  // CHECK-LABEL: func.func @not_added_to
  // CHECK: tile.start_mma
  // CHECK-NEXT: tile.wait_mmas 0
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  func.func @not_added_to(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 %s0 : !s -> !s
      %p = tile.cast %s : !s -> !p
      %o0 = tile.start_mma %p, %k plus %o : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }

  // The left operand does not depend on the first MMA.
  // CHECK-LABEL: func.func @independent
  // CHECK: tile.start_mma {{.*}} plus
  // CHECK-NEXT: tile.wait_mmas 0
  func.func @independent(%q: !q, %k: !tile, %n: i32, %i: i32, %o: !o, %w: !s) -> !o attributes {tile.schedule = #wgmma} {
    %out = scf.for %key = %i to %n step %i iter_args(%acc = %o) -> !o : i32 {
      %s0 = tile.start_mma %q at %i, %k : !q, !tile -> !s
      %s = tile.wait_mmas 0 %s0 : !s -> !s
      "test.use"(%s) : (!s) -> ()
      %p = tile.cast %w : !s -> !p
      %o0 = tile.start_mma %p, %k plus %acc : !p, !tile, !o -> !o
      %o1 = tile.wait_mmas 0 %o0 : !o -> !o
      scf.yield %o1 : !o
    }
    return %out : !o
  }
}
