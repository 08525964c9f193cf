// RUN: attn-opt %s --tile-hoist-uniform | FileCheck %s

!rows = !tile.fragment<[query 16], i32, row>
gpu.module @kernels {
  // Operations that depend on the element stay, and so do operations that must not run without an element: a
  // division, a read.
  // CHECK-LABEL: func.func @map(
  // CHECK-SAME: %[[X:arg0]]: {{.*}}, %[[A:arg1]]: i32, %[[B:arg2]]: i32
  // CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[A]], %[[B]]
  // CHECK-NEXT: %[[TWICE:.*]] = arith.addi %[[SUM]], %[[SUM]]
  // CHECK-NEXT: tile.map %[[X]] (%[[E:.*]]: i32) {
  // CHECK-NEXT: %[[D:.*]] = arith.divui %[[A]], %[[B]]
  // CHECK-NEXT: %[[R:.*]] = tile.read
  // CHECK-NEXT: %[[Y:.*]] = arith.addi %[[TWICE]], %[[E]]
  func.func @map(%x: !rows, %a: i32, %b: i32, %at: i64, %buffer: !tile.buffer<i32>) -> !rows {
    %0 = tile.map %x (%e: i32) {
      %sum = arith.addi %a, %b : i32
      %d = arith.divui %a, %b : i32
      %r = tile.read %buffer[%at] : <i32> -> i32
      %twice = arith.addi %sum, %sum : i32
      %y = arith.addi %twice, %e : i32
      %z = arith.addi %y, %d : i32
      %v = arith.addi %z, %r : i32
      tile.yield %v : i32
    } : !rows -> !rows
    return %0 : !rows
  }
  // CHECK-LABEL: func.func @yield(
  // CHECK-NEXT: %[[SUM:.*]] = arith.addi
  // CHECK-NEXT: tile.map
  // CHECK-NEXT: tile.yield %[[SUM]]
  func.func @yield(%x: !rows, %a: i32) -> !rows {
    %0 = tile.map %x (%e: i32) {
      %sum = arith.addi %a, %a : i32
      tile.yield %sum : i32
    } : !rows -> !rows
    return %0 : !rows
  }
}
