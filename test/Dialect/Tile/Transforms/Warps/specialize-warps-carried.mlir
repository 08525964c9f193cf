// RUN: attn-opt %s --allow-unregistered-dialect --tile-specialize-warps | FileCheck %s

// Values that loops and branches pass on stay with the role that needs them.

!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!v = !tile.shared<key 32, feature 128, bf16, swizzled>
!map = !tile.tensor_map<4>
!table = !tile.buffer<i32>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>

gpu.module @kernels {
  // The loops carry a slot, from which the next one is computed (the producer's), a sum (the consumer's) and
  // a count (both need it). The branch before the tile.produce decides both on the next slot and on a scale.
  // CHECK-LABEL: func.func @carried(
  // CHECK-SAME: %{{[^:]*}}: !tile.tensor_map<4>, %[[N:[^:]*]]: i32, %[[C:[^:]*]]: i1, %[[F:[^:]*]]: f32)
  // CHECK: tile.set_registers 40
  // CHECK: scf.for %{{.*}} iter_args(%[[PLACE:.*]] = %[[N]], %[[COUNT:.*]] = %c0_i32{{.*}}) -> (i32, i32)
  // CHECK-NEXT: %[[NEXT:.*]]:2 = scf.for %{{.*}} to %[[COUNT]] {{.*}} iter_args(%[[P:.*]] = %[[PLACE]], %[[T:.*]] = %[[COUNT]]) -> (i32, i32)
  // CHECK-NEXT: %[[FROM:.*]] = scf.if %[[C]] -> (i32) {
  // CHECK-NEXT: scf.yield %[[P]] : i32
  // CHECK-NEXT: } else {
  // CHECK-NEXT: %[[OTHER:.*]] = arith.muli %[[P]], %[[P]]
  // CHECK-NEXT: scf.yield %[[OTHER]] : i32
  // CHECK: tile.tma_load %{{.*}} from %[[FROM]]
  // CHECK: %[[P1:.*]] = arith.addi %[[FROM]]
  // CHECK-NEXT: %[[T1:.*]] = arith.addi %[[T]]
  // CHECK-NEXT: scf.yield %[[P1]], %[[T1]] : i32, i32
  // CHECK: scf.yield %[[NEXT]]#0, %[[NEXT]]#1 : i32, i32
  // CHECK: tile.set_registers increase
  // CHECK-NEXT: %[[LEFT:.*]]:2 = scf.for %{{.*}} iter_args(%[[COUNT:.*]] = %c0_i32{{.*}}, %[[SUM:.*]] = %[[F]]) -> (i32, f32)
  // CHECK-NEXT: %[[NEXT:.*]]:2 = scf.for %{{.*}} to %[[COUNT]] {{.*}} iter_args(%[[T:.*]] = %[[COUNT]], %[[S:.*]] = %[[SUM]]) -> (i32, f32)
  // CHECK-NEXT: %[[SCALE:.*]] = scf.if %[[C]] -> (f32) {
  // CHECK-NEXT: scf.yield %[[F]] : f32
  // CHECK-NEXT: } else {
  // CHECK-NEXT: scf.yield %[[S]] : f32
  // CHECK: %[[K:.*]] = tile.consume
  // CHECK-NEXT: %[[S1:.*]] = "test.add"(%[[S]], %[[K]], %[[SCALE]])
  // CHECK-NEXT: %[[T1:.*]] = arith.addi %[[T]]
  // CHECK-NEXT: scf.yield %[[T1]], %[[S1]] : i32, f32
  // CHECK: scf.yield %[[NEXT]]#0, %[[NEXT]]#1 : i32, f32
  // CHECK: "test.use"(%[[LEFT]]#1)
  func.func @carried(%map: !map, %n: i32, %c: i1, %f: f32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !k>
    %left:3 = scf.for %i = %zero to %n step %one iter_args(%place = %n, %count = %zero, %sum = %f) -> (i32, i32, f32) : i32 {
      %next:3 = scf.for %j = %zero to %count step %one iter_args(%p = %place, %t = %count, %s = %sum) -> (i32, i32, f32) : i32 {
        %from, %scale = scf.if %c -> (i32, f32) {
          scf.yield %p, %f : i32, f32
        } else {
          %other = arith.muli %p, %p : i32
          scf.yield %other, %s : i32, f32
        }
        %k = tile.produce %ring warp 3 (%tile: !k) {
          tile.tma_load %map from %from head %zero lines 32 into %tile : !map -> !k
        } : !tile.ring<2, !k> -> !k
        %s1 = "test.add"(%s, %k, %scale) : (f32, !k, f32) -> f32
        %p1 = arith.addi %from, %one : i32
        %t1 = arith.addi %t, %one : i32
        scf.yield %p1, %t1, %s1 : i32, i32, f32
      }
      scf.yield %next#0, %next#1, %next#2 : i32, i32, f32
    }
    "test.use"(%left#2) : (f32) -> ()
    return
  }

  // A value before the loop is for producers, and each producer warp has it; a tile.produce's own branch also
  // has the values it needs. Values that all iterations pass on unchanged are not carried.
  // CHECK-LABEL: func.func @ahead(
  // CHECK-SAME: %[[END:[^:]*]]: i32)
  // CHECK: tile.set_registers 40
  // CHECK: scf.if
  // CHECK-NEXT: scf.for %[[KEY:.*]] = %{{[^ ]*}} to %[[END]] step %{{[^ ]*}} : i32 {
  // CHECK-NEXT: %[[SLOT:.*]] = tile.ahead %[[KEY]]
  // CHECK: tile.produce %{{.*}} warp 0
  // CHECK: tile.tma_load %{{.*}} from %[[SLOT]]
  // CHECK-NOT: arith.subi
  // CHECK: scf.if
  // CHECK-NEXT: scf.for %[[KEY:.*]] = %{{[^ ]*}} to %[[END]] step %{{[^ ]*}} : i32 {
  // CHECK-NEXT: %[[SLOT:.*]] = tile.ahead %[[KEY]]
  // CHECK: %[[LEFT:.*]] = arith.subi %[[END]], %[[KEY]]
  // CHECK-NEXT: tile.produce %{{.*}} warp 1
  // CHECK: tile.tma_load %{{.*}} from %[[SLOT]]
  // CHECK: tile.clear %{{.*}} from %[[LEFT]]
  // CHECK: tile.set_registers increase
  // CHECK-NEXT: scf.for %{{[^ ]*}} = %{{[^ ]*}} to %[[END]] step %{{[^ ]*}} : i32 {
  // CHECK-NEXT: %[[K:.*]] = tile.consume
  // CHECK-NEXT: %[[V:.*]] = tile.consume
  // CHECK-NEXT: "test.use"(%[[K]], %[[V]], %[[END]])
  // CHECK-NEXT: }
  // CHECK-NEXT: "test.end"(%[[END]])
  func.func @ahead(%map: !map, %table: !table, %last: i1, %end: i32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %kring = tile.alloc : !tile.ring<2, !k>
    %vring = tile.alloc : !tile.ring<2, !v>
    %same = scf.for %key = %zero to %end step %one iter_args(%bound = %end) -> i32 : i32 {
      %slot = tile.ahead %key (%at: i32) {
        %x = arith.extsi %at : i32 to i64
        %read = tile.read %table[%x] : !table -> i32
        tile.yield %read : i32
      } : i32
      %k = tile.produce %kring warp 0 (%t: !k) {
        tile.tma_load %map from %slot head %zero lines 32 into %t : !map -> !k
      } : !tile.ring<2, !k> -> !k
      %left = arith.subi %bound, %key : i32
      %v = tile.produce %vring warp 1 (%t: !v) {
        tile.tma_load %map from %slot head %zero lines 32 into %t : !map -> !v
        scf.if %last {
          tile.clear %t from %left : !v
        }
      } : !tile.ring<2, !v> -> !v
      "test.use"(%k, %v, %bound) : (!k, !v, i32) -> ()
      scf.yield %bound : i32
    }
    "test.end"(%same) : (i32) -> ()
    return
  }
}
