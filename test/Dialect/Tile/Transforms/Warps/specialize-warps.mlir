// RUN: attn-opt %s --allow-unregistered-dialect --tile-specialize-warps | FileCheck %s

// Producers and consumers: one loop; two rings on two levels; gathers; both.

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
!s = !tile.fragment<[query 16, key 32], f32, acc>
!map = !tile.tensor_map<4>
!slots = !tile.buffer<i32>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232>
#mma = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // One tile.produce and one MMA: earlier operations are shared, the producer needs no sum, and the consumer no
  // slots.
  // CHECK-LABEL: func.func @toy(
  // CHECK-SAME: %[[MAP:[^:]*]]: !tile.tensor_map<4>, %[[Q:[^:]*]]: !tile.shared<{{[^>]*}}>, %[[SLOTS:[^:]*]]: !tile.buffer<i32>, %[[N:[^:]*]]: i32,
  // CHECK: %[[NONE:.*]] = tile.undefined
  // CHECK: %[[RING:.*]] = tile.alloc
  // CHECK-NEXT: %[[WARP:.*]] = tile.warp_id
  // CHECK-NEXT: %[[FOUR:.*]] = arith.constant 4
  // CHECK-NEXT: %[[PRODUCES:.*]] = arith.cmpi slt, %[[WARP]], %[[FOUR]]
  // CHECK-NEXT: scf.if %[[PRODUCES]] {
  // CHECK-NEXT:   tile.set_registers 40
  // CHECK-NEXT:   %[[ZERO:.*]] = arith.constant 0
  // CHECK-NEXT:   %[[IS:.*]] = arith.cmpi eq, %[[WARP]], %[[ZERO]]
  // CHECK-NEXT:   scf.if %[[IS]] {
  // CHECK-NEXT:     scf.for %[[I:.*]] = %{{.*}} to %[[N]] step %{{[^ ]*}} : i32 {
  // CHECK-NEXT:       %[[X:.*]] = arith.extsi %[[I]]
  // CHECK-NEXT:       %[[SLOT:.*]] = tile.read %[[SLOTS]][%[[X]]]
  // CHECK-NEXT:       tile.produce %[[RING]] warp 0
  // CHECK-SAME:       (%[[T:.*]]: !tile.shared
  // CHECK-NEXT:         tile.tma_load %[[MAP]] from %[[SLOT]] head %{{.*}} lines 32 into %[[T]] :
  // CHECK-NEXT:       }
  // CHECK-NEXT:     }
  // CHECK-NEXT:   }
  // CHECK-NEXT: } else {
  // CHECK-NEXT:   tile.set_registers increase 232
  // CHECK-NEXT:   %[[SUM:.*]] = scf.for %{{.*}} to %[[N]] step %{{.*}} iter_args(%[[ACC:.*]] = %[[NONE]])
  // CHECK-NEXT:     %[[K:.*]] = tile.consume %[[RING]]
  // CHECK-NEXT:     %[[STARTED:.*]] = tile.start_mma %[[Q]] at %{{.*}}, %[[K]] plus %[[ACC]]
  // CHECK-NEXT:     %[[NEW:.*]] = tile.wait_mmas 0 of %[[STARTED]]
  // CHECK-NEXT:     scf.yield %[[NEW]]
  // CHECK-NEXT:   }
  // CHECK-NEXT:   "test.use"(%[[SUM]])
  // CHECK-NEXT: }
  // CHECK-NEXT: return
  func.func @toy(%map: !map, %q: !q, %slots: !slots, %n: i32, %head: i32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %none = tile.undefined : !s
    %ring = tile.alloc : !tile.ring<2, !k>
    %sum = scf.for %i = %zero to %n step %one iter_args(%acc = %none) -> !s : i32 {
      %x = arith.extsi %i : i32 to i64
      %slot = tile.read %slots[%x] : !slots -> i32
      %k = tile.produce %ring warp 0 (%t: !k) {
        tile.tma_load %map from %slot head %head lines 32 into %t : !map -> !k
      } : !tile.ring<2, !k> -> !k
      %started = tile.start_mma %q at %zero, %k plus %acc : !q, !k, !s -> !s
      %new = tile.wait_mmas 0 of %started : !s -> !s
      scf.yield %new : !s
    }
    "test.use"(%sum) : (!s) -> ()
    return
  }

  // Two rings on two levels: each warp walks both loops, the outer one with only the operations of its own
  // tile.produce. The kernel already computes its warp.
  // CHECK-LABEL: func.func @levels(
  // CHECK: %[[QRING:.*]] = tile.alloc : !tile.ring<1,
  // CHECK: %[[KRING:.*]] = tile.alloc : !tile.ring<2,
  // CHECK: %[[WARP:.*]] = tile.warp_id
  // CHECK-NOT: tile.warp_id
  // CHECK: tile.start_next
  // CHECK: scf.if
  // CHECK: tile.set_registers 40
  // CHECK: arith.cmpi eq, %[[WARP]], %{{.*}}
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.record
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.produce %[[KRING]] warp 0
  // CHECK-NOT: tile.produce
  // CHECK: arith.cmpi eq, %[[WARP]], %{{.*}}
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.record
  // CHECK-NEXT: tile.produce %[[QRING]] warp 2
  // CHECK-NOT: scf.for
  // CHECK: } else {
  // CHECK-NEXT: tile.set_registers increase 232
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.record
  // CHECK-NEXT: %[[Q:.*]] = tile.consume %[[QRING]]
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: %[[K:.*]] = tile.consume %[[KRING]]
  // CHECK-NEXT: "test.dot"(%[[Q]], %[[K]])
  // CHECK-NOT: tile.commit
  func.func @levels(%map: !map, %tasks: !slots, %n: i32, %head: i32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %qring = tile.alloc : !tile.ring<1, !q>
    %kring = tile.alloc : !tile.ring<2, !k>
    %warp = tile.warp_id : i32
    tile.start_next
    scf.for %task = %zero to %n step %one : i32 {
      %row, %begin, %end = tile.record %tasks[%task] : !slots -> i32, i32, i32
      %q = tile.produce %qring warp 2 (%t: !q) {
        tile.tma_load %map from %row head %head lines 64 into %t : !map -> !q
      } : !tile.ring<1, !q> -> !q
      scf.for %key = %begin to %end step %one : i32 {
        %k = tile.produce %kring warp 0 (%t: !k) {
          tile.tma_load %map from %key head %head lines 32 into %t : !map -> !k
        } : !tile.ring<2, !k> -> !k
        "test.dot"(%q, %k) : (!q, !k) -> ()
      }
    }
    return
  }

  // All producers gather: one slice for all of them, which waits for its copies at the end.
  // CHECK-LABEL: func.func @gathers(
  // CHECK: tile.set_registers 40
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: %[[AT:.*]] = tile.lookup producers
  // CHECK: tile.produce
  // CHECK: tile.gather producers %{{.*}} to %{{.*}} at %[[AT]]
  // CHECK: }
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.commit
  // CHECK-NEXT: tile.wait 0
  // CHECK-NEXT: } else {
  // CHECK-NEXT: tile.set_registers increase 232
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: "test.use"
  // CHECK-NEXT: }
  func.func @gathers(%keys: !tile.buffer<bf16>, %table: !slots, %n: i32, %wide: i64) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %ring = tile.alloc : !tile.ring<2, !k>
    scf.for %i = %zero to %n step %one : i32 {
      %at = tile.lookup producers %i to %n lines 32 (%line: i32) {
        %x = arith.extsi %line : i32 to i64
        %slot = tile.read %table[%x] : !slots -> i32
        tile.yield %slot : i32
      }
      %k = tile.produce %ring (%t: !k) {
        tile.gather producers %i to %n at %at from %keys origins %wide strides [64] into %t : !tile.buffer<bf16> -> !k
      } : !tile.ring<2, !k> -> !k
      "test.use"(%k) : (!k) -> ()
    }
    return
  }

  // Queries are gathered by all producers; if only tokens are loaded by TMA, one warp does it.
  // CHECK-LABEL: func.func @mixed(
  // CHECK: %[[QRING:.*]] = tile.alloc : !tile.ring<1,
  // CHECK: %[[KRING:.*]] = tile.alloc : !tile.ring<2,
  // CHECK: tile.set_registers 40
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.produce %[[QRING]]
  // CHECK-NEXT: tile.gather
  // CHECK: %[[IS_ONE:.*]] = arith.cmpi eq, %{{.*}}, %c1_i32
  // CHECK-NEXT: scf.if %[[IS_ONE]] {
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.produce %[[KRING]] warp 1
  // CHECK: tile.commit
  // CHECK-NEXT: tile.wait 0
  // CHECK-NEXT: } else {
  // CHECK-NEXT: tile.set_registers increase 232
  func.func @mixed(%map: !map, %rows: !tile.buffer<bf16>, %n: i32, %head: i32, %wide: i64) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %qring = tile.alloc : !tile.ring<1, !q>
    %kring = tile.alloc : !tile.ring<2, !k>
    scf.for %task = %zero to %n step %one : i32 {
      %q = tile.produce %qring (%t: !q) {
        tile.gather producers %task to %n from %rows origins %wide strides [64] into %t (%line: i32) {
          tile.yield %line : i32
        } : !tile.buffer<bf16> -> !q
      } : !tile.ring<1, !q> -> !q
      scf.for %key = %zero to %task step %one : i32 {
        %k = tile.produce %kring warp 1 (%t: !k) {
          tile.tma_load %map from %key head %head lines 32 into %t : !map -> !k
        } : !tile.ring<2, !k> -> !k
        "test.dot"(%q, %k) : (!q, !k) -> ()
      }
    }
    return
  }

  // Under mma all warps copy and compute.
  // CHECK-LABEL: func.func @mma(
  // CHECK-NOT: tile.warp_id
  // CHECK: tile.produce
  // CHECK-NOT: tile.consume
  func.func @mma(%map: !map, %head: i32) attributes {tile.schedule = #mma} {
    %ring = tile.alloc : !tile.ring<2, !k>
    %k = tile.produce %ring warp 0 (%t: !k) {
      tile.tma_load %map from %head head %head lines 32 into %t : !map -> !k
    } : !tile.ring<2, !k> -> !k
    return
  }
}
