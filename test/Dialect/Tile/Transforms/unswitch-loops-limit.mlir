// RUN: attn-opt %s --allow-unregistered-dialect --tile-unswitch-loops | FileCheck %s

// A branch that is taken up to a limit: one loop up to the limit with the branch, and one that takes the rest
// of the tiles, from the first counter value that the other does not reach. Values counted in both go from
// one to the other.

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // CHECK-LABEL: func.func @consumer(
  // CHECK-SAME: %[[RING:[^:]*]]: !tile.ring<{{.*}}, %[[N:[^:]*]]: i32, %[[LIMIT:[^:]*]]: i32, %[[F:[^:]*]]: f32)
  // CHECK: %[[END:.*]] = arith.minsi %[[N]], %[[LIMIT]]
  // CHECK: %[[LENGTH:.*]] = arith.maxsi
  // CHECK: %[[STEPS:.*]] = arith.divui
  // CHECK: %[[DONE:.*]] = arith.muli %[[STEPS]], %[[STEP:.*]] : i32
  // CHECK: %[[BEGIN:.*]] = arith.addi %[[FIRST:.*]], %[[DONE]]
  // CHECK: %[[FRONT:.*]]:2 = scf.for %[[I:.*]] = %[[FIRST]] to %[[END]] step %[[STEP]] iter_args(%[[S:.*]] = %[[F]], %[[C:.*]] = %{{.*}})
  // CHECK-NEXT: %[[K:.*]] = tile.consume %[[RING]]
  // CHECK-NEXT: %[[S1:.*]] = "test.dot"(%[[S]], %[[K]])
  // CHECK-NEXT: %[[C1:.*]] = arith.addi %[[C]], %[[I]]
  // CHECK-NEXT: scf.yield %[[S1]], %[[C1]]
  // CHECK-NEXT: }
  // CHECK-NEXT: %[[BACK:.*]] = scf.for %[[I:.*]] = %[[BEGIN]] to %[[N]] step %[[STEP]] iter_args(%[[C:.*]] = %[[FRONT]]#1)
  // CHECK-NEXT: tile.consume %[[RING]]
  // CHECK-NEXT: %[[C1:.*]] = arith.addi %[[C]], %[[I]]
  // CHECK-NEXT: scf.yield %[[C1]]
  // CHECK-NEXT: }
  // CHECK-NEXT: "test.use"(%[[FRONT]]#0, %[[BACK]])
  func.func @consumer(%ring: !tile.ring<2, !k>, %n: i32, %limit: i32, %f: f32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %keys = arith.constant 32 : i32
    %sum, %count = scf.for %i = %zero to %n step %keys iter_args(%s = %f, %c = %zero) -> (f32, i32) : i32 {
      %k = tile.consume %ring : !tile.ring<2, !k> -> !k
      %sees = arith.cmpi slt, %i, %limit : i32
      %s1 = scf.if %sees -> f32 {
        %added = "test.dot"(%s, %k) : (f32, !k) -> f32
        scf.yield %added : f32
      } else {
        scf.yield %s : f32
      }
      %c1 = arith.addi %c, %i : i32
      scf.yield %s1, %c1 : f32, i32
    }
    "test.use"(%sum, %count) : (f32, i32) -> ()
    return
  }
}
