// RUN: attn-opt %s --tile-look-ahead | FileCheck %s

// The loop carries the value for its next iteration; an empty loop looks nothing up.
gpu.module @kernels {
  func.func @loop(%table: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %b: i32, %at: i64) {
    %step = arith.constant 64 : i32
    scf.for %i = %a to %b step %step : i32 {
      %x = tile.ahead %i (%j: i32) {
        %w = arith.extsi %j : i32 to i64
        %r = tile.read %table[%w] : <i32> -> i32
        tile.yield %r : i32
      } : i32
      tile.write %x to %out[%at] : i32 -> <i32>
    }
    return
  }
  // A lookup takes the condition itself, and then reads nothing.
  func.func @lookup(%table: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %b: i32, %at: i64) {
    %step = arith.constant 64 : i32
    scf.for %i = %a to %b step %step : i32 {
      %x = tile.ahead %i (%j: i32) {
        %boxes = tile.lookup_boxes %j to %b lines 16 (%line: i32) {
          %slot = tile.paged_slot start %table[%a, %line] columns %a page 16 : <i32>
          tile.yield %slot : i32
        }
        tile.yield %boxes : i32
      } : i32
      tile.write %x to %out[%at] : i32 -> <i32>
    }
    return
  }
  // A value that does not depend on the loop's counter is computed in place.
  func.func @elsewhere(%table: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %at: i64) {
    %x = tile.ahead %a (%j: i32) {
      %w = arith.extsi %j : i32 to i64
      %r = tile.read %table[%w] : <i32> -> i32
      tile.yield %r : i32
    } : i32
    tile.write %x to %out[%at] : i32 -> <i32>
    return
  }
}

// CHECK-LABEL: func.func @loop(
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %arg2, %arg3
// CHECK: %[[FIRST:.*]] = scf.if %[[SOME]] -> (i32) {
// CHECK: %[[A:.*]] = arith.extsi %arg2
// CHECK-NEXT: %[[R:.*]] = tile.read %arg0[%[[A]]]
// CHECK-NEXT: scf.yield %[[R]]
// CHECK: scf.for %[[I:.*]] = %arg2 to %arg3 {{.*}} iter_args(%[[X:.*]] = %[[FIRST]])
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %{{.*}}
// CHECK-NEXT: %[[W:.*]] = arith.extsi %[[NEXT]]
// CHECK-NEXT: %[[READ:.*]] = tile.read %arg0[%[[W]]]
// CHECK-NEXT: tile.write %[[X]]
// CHECK-NEXT: scf.yield %[[READ]]

// CHECK-LABEL: func.func @lookup(
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %arg2, %arg3
// CHECK-NEXT: %[[FIRST:.*]] = tile.lookup_boxes %arg2 to %arg3 lines 16 if %[[SOME]] (
// CHECK: scf.for %[[I:.*]] = %arg2 to %arg3 {{.*}} iter_args(%[[X:.*]] = %[[FIRST]])
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %{{.*}}
// CHECK-NEXT: %[[LOOKED:.*]] = tile.lookup_boxes %[[NEXT]] to %arg3 lines 16 (
// CHECK: tile.write %[[X]]
// CHECK-NEXT: scf.yield %[[LOOKED]]

// CHECK-LABEL: func.func @elsewhere(
// CHECK-NEXT: %[[W:.*]] = arith.extsi %arg2
// CHECK-NEXT: %[[R:.*]] = tile.read %arg0[%[[W]]]
// CHECK-NEXT: tile.write %[[R]]
