// RUN: attn-opt %s --allow-unregistered-dialect --tile-pipeline-copies | FileCheck %s

!keys = !tile.shared<key 16, feature 64, bf16, swizzled>

gpu.module @kernels {
  // CHECK-LABEL: func.func @three_stages
  // CHECK-SAME: (%[[N:[^:]*]]: i32, %[[FIRST:[^:]*]]: i32, %[[END:[^:]*]]: i32
  func.func @three_stages(%n: i32, %first: i32, %end: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    // CHECK: %[[RING:.*]] = tile.alloc
    %ring = tile.alloc {per_warp} : !tile.ring<3, !keys>

    // Two gathers before the loop, into stages 0 and 1, each only if there is such a tile; groups are always
    // closed.
    // CHECK: %[[T0:.*]] = arith.constant 0 : i32
    // CHECK: %[[HAS0:.*]] = arith.cmpi slt, %[[T0]], %[[N]]
    // CHECK-NEXT: scf.if %[[HAS0]] {
    // CHECK-NEXT: %[[OFF0:.*]] = arith.muli %[[T0]],
    // CHECK-NEXT: %[[BEGIN0:.*]] = arith.addi %[[FIRST]], %[[OFF0]]
    // CHECK-NEXT: %[[STAGE0:.*]] = tile.ring_stage %[[RING]][%[[T0]]]
    // CHECK-NEXT: tile.gather warp %[[BEGIN0]] to %[[END]] {{.*}} into %[[STAGE0]]
    // CHECK: }
    // CHECK-NEXT: }
    // CHECK-NEXT: tile.commit
    // CHECK-NEXT: %[[T1:.*]] = arith.constant 1 : i32
    // CHECK-NEXT: %[[HAS1:.*]] = arith.cmpi slt, %[[T1]], %[[N]]
    // CHECK-NEXT: scf.if %[[HAS1]] {
    // CHECK: tile.ring_stage %[[RING]][%[[T1]]]
    // CHECK-NEXT: tile.gather
    // CHECK: tile.commit
    // CHECK-NOT: tile.gather

    // The loop: wait until one group is left, one barrier, the gather two tiles ahead, then the computation.
    // CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[N]]
    // CHECK-NEXT: %[[TWO:.*]] = arith.constant 2 : i32
    // CHECK-NEXT: %[[AHEAD:.*]] = arith.addi %[[I]], %[[TWO]]
    // CHECK-NEXT: %[[STAGE:.*]], %{{.*}} = tile.ring_position %[[I]] of 3
    // CHECK-NEXT: %[[NEXT:.*]], %{{.*}} = tile.ring_position %[[AHEAD]] of 3
    // CHECK-NEXT: tile.wait 1
    // CHECK-NEXT: tile.sync warp
    // CHECK-NEXT: %[[HAS:.*]] = arith.cmpi slt, %[[AHEAD]], %[[N]]
    // CHECK-NEXT: scf.if %[[HAS]] {
    // CHECK-NEXT: %[[OFF:.*]] = arith.muli %[[AHEAD]],
    // CHECK-NEXT: %[[BEGIN:.*]] = arith.addi %[[FIRST]], %[[OFF]]
    // CHECK-NEXT: %[[TARGET:.*]] = tile.ring_stage %[[RING]][%[[NEXT]]]
    // CHECK-NEXT: tile.gather warp %[[BEGIN]] to %[[END]] {{.*}} into %[[TARGET]]
    // CHECK: }
    // CHECK-NEXT: }
    // CHECK-NEXT: tile.commit
    // CHECK-NOT: tile.sync
    // CHECK-NOT: tile.wait
    // CHECK: %[[TILE:.*]] = tile.ring_stage %[[RING]][%[[STAGE]]]
    // CHECK-NEXT: "test.compute"(%[[TILE]])
    // CHECK-NEXT: }
    // CHECK-NEXT: tile.sync warp
    // CHECK-NEXT: return
    scf.for %i = %c0 to %n step %c1 : i32 {
      %offset = arith.muli %i, %c16 : i32
      %begin = arith.addi %first, %offset : i32
      %slot = tile.ring_stage %ring[%c0] : <3, !keys> -> !keys
      tile.gather warp %begin to %end from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.commit
      tile.wait 0
      tile.sync warp
      "test.compute"(%slot) : (!keys) -> ()
      tile.sync warp
    } {tile.stages = 3 : i64}
    return
  }

  // One stage: copies and computation alternate, and the loop is unchanged.
  // CHECK-LABEL: func.func @one_stage
  func.func @one_stage(%n: i32, %end: i32, %b: !tile.buffer<bf16>, %z: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<1, !keys>
    // CHECK: scf.for
    // CHECK-NEXT: tile.ring_stage
    // CHECK-NEXT: tile.gather block
    // CHECK: tile.commit
    // CHECK-NEXT: tile.wait 0
    // CHECK-NEXT: tile.sync block
    // CHECK-NEXT: "test.compute"
    // CHECK-NEXT: tile.sync block
    // CHECK-NEXT: }
    // CHECK-NOT: tile.stages
    scf.for %i = %c0 to %n step %c1 : i32 {
      %slot = tile.ring_stage %ring[%c0] : <1, !keys> -> !keys
      tile.gather block %i to %end from %b origins %z strides [64] into %slot (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.commit
      tile.wait 0
      tile.sync block
      "test.compute"(%slot) : (!keys) -> ()
      tile.sync block
    } {tile.stages = 1 : i64}
    return
  }

  // A wait for older copies precedes the loop: the first tile starts before that wait, which leaves its group
  // unfinished. The inputs of the gather move, too, and the users of the older copies stay after the wait.
  // CHECK-LABEL: func.func @older_copies
  // CHECK: %[[FROM:.*]] = arith.addi
  // CHECK: scf.if
  // CHECK: tile.gather warp %{{.*}}
  // CHECK: tile.commit
  // CHECK-NEXT: tile.wait 1
  // CHECK-NEXT: tile.sync block
  // CHECK-NEXT: tile.load
  // CHECK: scf.for
  func.func @older_copies(%n: i32, %first: i32, %end: i32, %b: !tile.buffer<bf16>, %z: i64, %i: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %queries = tile.alloc : !tile.shared<query 16, feature 64, bf16, swizzled>
    %ring = tile.alloc {per_warp} : !tile.ring<2, !keys>
    tile.wait 0
    tile.sync block
    %q = tile.load %queries at %i : !tile.shared<query 16, feature 64, bf16, swizzled> -> !tile.fragment<[query 16, feature 64], bf16, lhs>
    %from = arith.addi %first, %i : i32
    scf.for %t = %c0 to %n step %c1 : i32 {
      %tile = tile.ring_stage %ring[%c0] : !tile.ring<2, !keys> -> !keys
      %begin = arith.addi %from, %t : i32
      tile.gather warp %begin to %end from %b origins %z strides [64] into %tile (%line: i32) {
        tile.yield %line : i32
      } : !tile.buffer<bf16> -> !keys
      tile.commit
      tile.wait 0
      tile.sync warp
      "test.compute"(%tile, %q) : (!keys, !tile.fragment<[query 16, feature 64], bf16, lhs>) -> ()
      tile.sync warp
    } {tile.stages = 2 : i64}
    return
  }

  // Lines that must be looked up: all lookups of the first tiles start before the first gather, if there is
  // such a tile. In the loop the lookup runs a tile ahead of the gather, which uses the result of the
  // previous iteration.
  // CHECK-LABEL: func.func @looked_up
  // CHECK-SAME: (%[[N:[^:]*]]: i32, %[[END:[^:]*]]: i32
  // CHECK: %[[HAS0:.*]] = arith.cmpi slt, %{{.*}}, %[[N]]
  // CHECK: %[[LOOKED0:.*]] = tile.lookup warp %{{.*}} to %[[END]] lines 16 if %[[HAS0]]
  // CHECK: %[[LOOKED1:.*]] = tile.lookup warp {{.*}} if
  // CHECK: %[[LOOKED2:.*]] = tile.lookup warp {{.*}} if
  // CHECK-NOT: tile.lookup
  // CHECK: tile.gather warp %{{.*}} to %[[END]] at %[[LOOKED0]]
  // CHECK: tile.gather warp %{{.*}} to %[[END]] at %[[LOOKED1]]
  // CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[N]] {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}, %[[FOUND:.*]] = %[[LOOKED2]])
  // CHECK: %[[AHEAD:.*]] = arith.addi %[[I]], %{{.*}}
  // CHECK: tile.gather warp %{{.*}} to %[[END]] at %[[FOUND]]
  // CHECK: tile.commit
  // CHECK: %[[NEXT:.*]] = arith.addi %[[AHEAD]],
  // CHECK: %[[HASNEXT:.*]] = arith.cmpi slt, %[[NEXT]], %[[N]]
  // CHECK: %[[OFF:.*]] = arith.muli %[[NEXT]],
  // CHECK: %[[SLOTS:.*]] = tile.lookup warp %[[OFF]] to %[[END]] lines 16 if %[[HASNEXT]]
  // CHECK: %[[ADDED:.*]] = "test.compute"
  // CHECK: scf.yield %[[ADDED]], %[[SLOTS]] : f32, i32
  // CHECK-NEXT: }
  // CHECK-NOT: tile.stages
  func.func @looked_up(%n: i32, %end: i32, %b: !tile.buffer<bf16>, %t: !tile.buffer<i32>, %z: i64, %f: f32) -> f32 {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %ring = tile.alloc {per_warp} : !tile.ring<3, !keys>
    %result = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %f) -> f32 : i32 {
      %begin = arith.muli %i, %c16 : i32
      %tile = tile.ring_stage %ring[%c0] : !tile.ring<3, !keys> -> !keys
      %slots = tile.lookup warp %begin to %end lines 16 (%line: i32) {
        %at = arith.extsi %line : i32 to i64
        %slot = tile.read %t[%at] : !tile.buffer<i32> -> i32
        tile.yield %slot : i32
      }
      tile.gather warp %begin to %end at %slots from %b origins %z strides [64] into %tile : !tile.buffer<bf16> -> !keys
      tile.commit
      tile.wait 0
      tile.sync warp
      %added = "test.compute"(%tile, %sum) : (!keys, f32) -> f32
      tile.sync warp
      scf.yield %added : f32
    } {tile.stages = 3 : i64}
    return %result : f32
  }
}
