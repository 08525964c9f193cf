// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// Lookups of tiles that may not exist, of boxes, of packed rows and of stages.
gpu.module @kernels {
  // Nothing is read if the tile does not exist.
  // CHECK-LABEL: func.func @lookup(
  // CHECK-SAME: %{{.*}}: i32, %[[END:[^ ]*]]: i32, %[[EXISTS:[^ ]*]]: i1
  // CHECK: %[[SLOTS:.*]] = scf.if %[[EXISTS]] -> (i32) {
  // CHECK: %[[LAST:.*]] = arith.addi %[[END]], %c-1_i32
  // CHECK: arith.minsi %{{.*}}, %[[LAST]]
  // CHECK: llvm.load
  // CHECK: } else {
  // CHECK-NEXT: scf.yield %c0_i32
  // CHECK: llvm.store %[[SLOTS]]
  func.func @lookup(%begin: i32, %end: i32, %exists: i1, %table: !tile.buffer<i32>, %out: !tile.buffer<i32>, %i: i64) {
    %slots = tile.lookup warp %begin to %end lines 16 if %exists (%line: i32) {
      %at = arith.extsi %line : i32 to i64
      %slot = tile.read %table[%at] : <i32> -> i32
      tile.yield %slot : i32
    }
    tile.write %slots to %out[%i] : i32 -> <i32>
    return
  }
  // Lane i has the line of box i; boxes that do not exist read the last box's entry and lie outside.
  // CHECK-LABEL: func.func @boxes(
  // CHECK-SAME: %[[BEGIN:[^ ]*]]: i32, %[[END:[^ ]*]]: i32
  // CHECK: %[[LANE:.*]] = arith.andi %{{.*}}, %c31_i32
  // CHECK-NOT: scf.if
  // CHECK-DAG: %[[LAST:.*]] = arith.subi %[[END]], %c1_i32
  // CHECK-DAG: %[[STEP:.*]] = arith.muli %[[LANE]], %c16_i32
  // CHECK-DAG: %[[LINE:.*]] = arith.addi %[[BEGIN]], %[[STEP]]
  // CHECK-DAG: %[[IN:.*]] = arith.remui %[[LAST]], %c16_i32
  // CHECK-DAG: %[[OFLAST:.*]] = arith.subi %[[LAST]], %[[IN]]
  // CHECK: arith.minsi %[[LINE]], %[[OFLAST]]
  // CHECK: %[[THERE:.*]] = llvm.load
  // CHECK: %[[EXISTS:.*]] = arith.cmpi slt, %[[LINE]], %[[END]]
  // CHECK: arith.select %[[EXISTS]], %[[THERE]], %c2147418112_i32
  func.func @boxes(%begin: i32, %end: i32, %table: !tile.buffer<i32>, %out: !tile.buffer<i32>, %i: i64) {
    %slots = tile.lookup_boxes %begin to %end lines 16 (%line: i32) {
      %at = arith.extsi %line : i32 to i64
      %slot = tile.read %table[%at] : <i32> -> i32
      tile.yield %slot : i32
    }
    tile.write %slots to %out[%i] : i32 -> <i32>
    return
  }
  // Query row p / 4 of 32 heads, query head h * 4 + p % 4.
  // CHECK-LABEL: func.func @packed(
  // CHECK-SAME: %[[P:[^ ]*]]: i32, %[[H:[^ ]*]]: i32
  // CHECK-DAG: %[[ROW:.*]] = arith.divui %[[P]], %c4_i32
  // CHECK-DAG: %[[OFHEAD:.*]] = arith.muli %[[H]], %c4_i32
  // CHECK-DAG: %[[OFGROUP:.*]] = arith.remui %[[P]], %c4_i32
  // CHECK-DAG: %[[HEAD:.*]] = arith.addi %[[OFHEAD]], %[[OFGROUP]]
  // CHECK-DAG: %[[ROW64:.*]] = arith.extsi %[[ROW]]
  // CHECK-DAG: %[[HEAD64:.*]] = arith.extsi %[[HEAD]]
  // CHECK-DAG: %[[FIRST:.*]] = arith.muli %[[ROW64]], %c32_i64
  // CHECK: %[[SLOT:.*]] = arith.addi %[[FIRST]], %[[HEAD64]] : i64
  // CHECK: llvm.getelementptr %{{.*}}[%[[SLOT]]]
  func.func @packed(%p: i32, %h: i32, %out: !tile.buffer<i32>) {
    %slot = tile.packed_slot %p head %h group 4 of 32 : i64
    tile.write %h to %out[%slot] : i32 -> <i32>
    return
  }
  // CHECK-LABEL: func.func @position(
  // CHECK-SAME: %[[TILE:[^ ]*]]: i32
  // CHECK-DAG: %[[ROUND:.*]] = arith.divui %[[TILE]], %c3_i32
  // CHECK-DAG: %[[STAGE:.*]] = arith.remui %[[TILE]], %c3_i32
  // CHECK-DAG: %[[PARITY:.*]] = arith.remui %[[ROUND]], %c2_i32
  // CHECK: %[[BEFORE:.*]] = arith.subi %c1_i32, %[[PARITY]]
  // CHECK: nvvm.mbarrier.try_wait.parity %{{.*}}, %[[BEFORE]],
  func.func @position(%tile: i32) {
    %barriers = tile.alloc {offset = 0 : i64} : !tile.barriers<3>
    %stage, %parity = tile.ring_position %tile of 3
    tile.mbarrier_wait %barriers[%stage] before parity %parity : <3>
    return
  }
}
