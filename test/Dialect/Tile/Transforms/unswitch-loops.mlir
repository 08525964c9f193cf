// RUN: attn-opt %s --allow-unregistered-dialect --tile-unswitch-loops | FileCheck %s

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!map = !tile.tensor_map<4>
!table = !tile.buffer<i32>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
#mma = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // A consumer whose rows may not exist. With rows a loop without branches; without, one that takes tiles,
  // advances the counters, and leaves the sum unchanged. Other uses of the condition become a constant.
  // Values without uses after the loop are not its results.
  // CHECK-LABEL: func.func @consumer(
  // CHECK-SAME: %[[RING:[^:]*]]: !tile.ring<{{.*}}, %[[N:[^:]*]]: i32, %[[ROWS:[^:]*]]: i1, %[[F:[^:]*]]: f32)
  // CHECK: %[[OUT:.*]]:2 = scf.if %[[ROWS]] -> (f32, i32) {
  // CHECK-NEXT: %[[TRUE:.*]] = arith.constant true
  // CHECK-NEXT: %[[LOOP:.*]]:3 = scf.for %[[I:.*]] = %{{.*}} to %[[N]] step %{{.*}} iter_args(%[[S:.*]] = %[[F]], %[[C:.*]] = %{{.*}}, %[[M:.*]] = %[[F]]) -> (f32, i32, f32)
  // CHECK-NEXT: %[[K:.*]] = tile.consume %[[RING]]
  // CHECK-NEXT: %[[D:.*]] = arith.sitofp %[[I]]
  // CHECK-NEXT: %[[S1:.*]] = "test.dot"(%[[S]], %[[K]], %[[M]], %[[D]])
  // CHECK-NEXT: %[[M1:.*]] = arith.mulf %[[S1]], %[[D]]
  // CHECK-NEXT: "test.note"(%[[TRUE]])
  // CHECK-NEXT: %[[C1:.*]] = arith.addi %[[C]], %[[I]]
  // CHECK-NEXT: scf.yield %[[S1]], %[[C1]], %[[M1]]
  // CHECK-NEXT: }
  // CHECK-NEXT: scf.yield %[[LOOP]]#0, %[[LOOP]]#1 : f32, i32
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[FALSE:.*]] = arith.constant false
  // CHECK-NEXT: %[[COUNT:.*]] = scf.for %[[I:.*]] = %{{.*}} to %[[N]] step %{{.*}} iter_args(%[[C:.*]] = %{{.*}}) -> (i32)
  // CHECK-NEXT: tile.consume %[[RING]]
  // CHECK-NEXT: "test.note"(%[[FALSE]])
  // CHECK-NEXT: %[[C1:.*]] = arith.addi %[[C]], %[[I]]
  // CHECK-NEXT: scf.yield %[[C1]]
  // CHECK-NEXT: }
  // CHECK-NEXT: scf.yield %[[F]], %[[COUNT]] : f32, i32
  // CHECK-NEXT: }
  // CHECK-NEXT: "test.use"(%[[OUT]]#0, %[[OUT]]#1)
  func.func @consumer(%ring: !tile.ring<2, !k>, %n: i32, %rows: i1, %f: f32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %sum, %count, %max = scf.for %i = %zero to %n step %one iter_args(%s = %f, %c = %zero, %m = %f) -> (f32, i32, f32) : i32 {
      %k = tile.consume %ring : !tile.ring<2, !k> -> !k
      %d = arith.sitofp %i : i32 to f32
      %s1, %m1 = scf.if %rows -> (f32, f32) {
        %added = "test.dot"(%s, %k, %m, %d) : (f32, !k, f32, f32) -> f32
        %more = arith.mulf %added, %d : f32
        scf.yield %added, %more : f32, f32
      } else {
        scf.yield %s, %m : f32, f32
      }
      "test.note"(%rows) : (i1) -> ()
      %c1 = arith.addi %c, %i : i32
      scf.yield %s1, %c1, %m1 : f32, i32, f32
    }
    "test.use"(%sum, %count) : (f32, i32) -> ()
    return
  }

  // A branch that reads no tile stays: computations on tiles exist once, though the condition is known.
  // CHECK-LABEL: func.func @mask(
  // CHECK-NOT: scf.if
  // CHECK: scf.for
  // CHECK: %[[D:.*]] = "test.dot"
  // CHECK-NEXT: scf.if %arg2
  // CHECK-NOT: scf.for
  // CHECK: return
  func.func @mask(%ring: !tile.ring<2, !k>, %n: i32, %list: i1, %f: f32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    scf.for %i = %zero to %n step %one : i32 {
      %k = tile.consume %ring : !tile.ring<2, !k> -> !k
      %d = "test.dot"(%k) : (!k) -> f32
      %m = scf.if %list -> f32 {
        %masked = arith.mulf %d, %f : f32
        scf.yield %masked : f32
      } else {
        scf.yield %d : f32
      }
      "test.softmax"(%m) : (f32) -> ()
    }
    return
  }

  // A producer that loads from one of three tensors: a branch in the loop finds the slot, and the copies
  // choose the tensor. Three loops, each with the operations of its own tensor. Conditions that differ
  // between tiles stay in the loop.
  // CHECK-LABEL: func.func @producer(
  // CHECK-SAME: %[[A:[^:]*]]: !tile.tensor_map<4>, %[[B:[^:]*]]: !tile.tensor_map<4>, %[[C:[^:]*]]: !tile.tensor_map<4>, %[[TABLE:[^:]*]]: !tile.buffer<i32>, %[[FIRST:[^:]*]]: i1, %[[SECOND:[^:]*]]: i1
  // CHECK: scf.if %[[FIRST]] {
  // CHECK-NEXT: scf.for %[[I:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: tile.produce
  // CHECK-SAME: (%[[T:.*]]: !tile
  // CHECK-NEXT: tile.tma_load %[[A]] from %[[I]]
  // CHECK-NEXT: %[[TAIL:.*]] = arith.cmpi eq, %[[I]]
  // CHECK-NEXT: scf.if %[[TAIL]] {
  // CHECK-NEXT: tile.clear %[[T]]
  // CHECK: } else {
  // CHECK-NEXT: scf.if %[[SECOND]] {
  // CHECK-NEXT: scf.for %[[I:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: arith.extsi %[[I]]
  // CHECK-NEXT: %[[SLOT:.*]] = tile.read %[[TABLE]]
  // CHECK-NEXT: tile.produce
  // CHECK-NEXT: tile.tma_load %[[B]] from %[[SLOT]]
  // CHECK: } else {
  // CHECK-NEXT: scf.for %[[I:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: tile.produce
  // CHECK-NEXT: tile.tma_load %[[C]] from %[[I]]
  // CHECK-NOT: scf.for
  // CHECK: return
  func.func @producer(%a: !map, %b: !map, %c: !map, %table: !table, %first: i1, %second: i1, %n: i32, %ring: !tile.ring<2, !k>) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    scf.for %i = %zero to %n step %one : i32 {
      %x = arith.extsi %i : i32 to i64
      %read = tile.read %table[%x] : !table -> i32
      %k = tile.produce %ring warp 0 (%t: !k) {
        scf.if %first {
          tile.tma_load %a from %i head %zero lines 32 into %t : !map -> !k
        } else {
          scf.if %second {
            tile.tma_load %b from %read head %zero lines 32 into %t : !map -> !k
          } else {
            tile.tma_load %c from %i head %zero lines 32 into %t : !map -> !k
          }
        }
        %tail = arith.cmpi eq, %i, %n : i32
        scf.if %tail {
          tile.clear %t from %zero : !k
        }
      } : !tile.ring<2, !k> -> !k
    }
    return
  }
}
