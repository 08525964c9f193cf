// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// table[row * columns + token / 16] * 16 + token % 16, with a 64-bit index.
gpu.module @kernels {
  // CHECK-LABEL: func.func @slots(
  // CHECK-SAME: %[[TABLE:.*]]: !llvm.ptr<1>, %[[ROW:.*]]: i32, %[[COLUMNS:.*]]: i32, %[[TOKEN:.*]]: i32,
  // CHECK-DAG: %[[ROW64:.*]] = arith.extsi %[[ROW]] : i32 to i64
  // CHECK-DAG: %[[COLUMNS64:.*]] = arith.extsi %[[COLUMNS]] : i32 to i64
  // CHECK: %[[BEGIN:.*]] = arith.muli %[[ROW64]], %[[COLUMNS64]] : i64
  // CHECK: %[[PAGE:.*]] = arith.divui %[[TOKEN]], %[[C16:.*]] : i32
  // CHECK: %[[PAGE64:.*]] = arith.extsi %[[PAGE]]
  // CHECK: %[[ENTRY:.*]] = arith.addi %[[BEGIN]], %[[PAGE64]]
  // CHECK: %[[AT:.*]] = llvm.getelementptr %[[TABLE]][%[[ENTRY]]]
  // CHECK: %[[PHYSICAL:.*]] = llvm.load %[[AT]] invariant
  // CHECK: %[[FIRST:.*]] = arith.muli %[[PHYSICAL]], %[[C16]]
  // CHECK: %[[IN:.*]] = arith.remui %[[TOKEN]], %[[C16]]
  // CHECK: %[[SLOT:.*]] = arith.addi %[[FIRST]], %[[IN]]
  // CHECK: llvm.store %[[SLOT]],
  func.func @slots(%table: !tile.buffer<i32>, %row: i32, %columns: i32, %token: i32, %out: !tile.buffer<i32>, %i: i64) {
    %slot = tile.paged_slot %table[%row, %token] columns %columns page 16 : <i32>
    tile.write %slot to %out[%i] : i32 -> <i32>
    return
  }
  // CHECK-LABEL: func.func @pages(
  // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %{{.*}} : i32
  // CHECK-NOT: arith.remui
  // CHECK: llvm.store %[[FIRST]],
  func.func @pages(%table: !tile.buffer<i32>, %row: i32, %columns: i32, %token: i32, %out: !tile.buffer<i32>, %i: i64) {
    %slot = tile.paged_slot start %table[%row, %token] columns %columns page 16 : <i32>
    tile.write %slot to %out[%i] : i32 -> <i32>
    return
  }
  // Tokens of a page that are no power of two: the divisor is a constant, so that no division is left in PTX.
  // CHECK-LABEL: func.func @hybrid(
  // CHECK-DAG: %[[C784:.*]] = arith.constant 784 : i32
  // CHECK: arith.divui %{{.*}}, %[[C784]] : i32
  // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %[[C784]] : i32
  // CHECK: %[[IN:.*]] = arith.remui %{{.*}}, %[[C784]] : i32
  // CHECK: arith.addi %[[FIRST]], %[[IN]]
  func.func @hybrid(%table: !tile.buffer<i32>, %row: i32, %columns: i32, %token: i32, %out: !tile.buffer<i32>, %i: i64) {
    %slot = tile.paged_slot %table[%row, %token] columns %columns page 784 : <i32>
    tile.write %slot to %out[%i] : i32 -> <i32>
    return
  }
  // Pages are further apart than their number of tokens.
  // CHECK-LABEL: func.func @apart(
  // CHECK-SAME: %[[APART:[^ ]*]]: i32,
  // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %[[APART]] : i32
  // CHECK: %[[IN:.*]] = arith.remui %{{.*}}, %c16_i32
  // CHECK: arith.addi %[[FIRST]], %[[IN]]
  func.func @apart(%apart: i32, %table: !tile.buffer<i32>, %row: i32, %columns: i32, %token: i32, %out: !tile.buffer<i32>, %i: i64) {
    %slot = tile.paged_slot %table[%row, %token] columns %columns page 16 apart %apart : <i32>
    tile.write %slot to %out[%i] : i32 -> <i32>
    return
  }
  // A record that may not exist is read in a branch.
  // CHECK-LABEL: func.func @records(
  // CHECK-SAME: %[[EXISTS:[^ ]*]]: i1
  // CHECK: scf.if %[[EXISTS]] -> (i32) {
  // CHECK: nvvm.shfl.sync
  // CHECK: else
  // CHECK-NEXT: scf.yield %c0_i32
  func.func @records(%records: !tile.buffer<i32>, %i: i32, %exists: i1, %out: !tile.buffer<i32>, %at: i64) {
    %field = tile.record %records[%i] if %exists : <i32> -> i32
    tile.write %field to %out[%at] : i32 -> <i32>
    return
  }
}
