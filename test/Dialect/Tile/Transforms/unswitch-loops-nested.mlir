// RUN: attn-opt %s --allow-unregistered-dialect --tile-unswitch-loops | FileCheck %s

// Loops and branches to which the pass applies.

!q = !tile.shared<query 64, feature 64, bf16, swizzled>
!k = !tile.shared<key 32, feature 64, bf16, swizzled>
#schedule = #tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
#mma = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  // A condition that depends on the outer loop stays in it; so does one in a loop without tiles. Two branches
  // on the same condition are one decision, in any position.
  // CHECK-LABEL: func.func @outer(
  // CHECK: scf.for %[[TASK:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: %[[HAS:.*]] = arith.cmpi slt, %[[TASK]]
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: scf.if %[[HAS]] {
  // CHECK-NEXT: "test.segment"
  // CHECK-NEXT: }
  // CHECK-NEXT: scf.if %[[HAS]] {
  // CHECK-NEXT: scf.for %[[KEY:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: %[[FULL:.*]] = arith.cmpi eq, %[[KEY]]
  // CHECK-NEXT: scf.if %[[FULL]] {
  // CHECK-NEXT: "test.mask"
  // CHECK-NEXT: "test.more"
  // CHECK-NEXT: }
  // CHECK-NEXT: "test.dot"
  // CHECK-NEXT: }
  // CHECK-NEXT: } else {
  // CHECK-NEXT: scf.for %[[KEY:.*]] = {{.*}} : i32 {
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: %[[FULL:.*]] = arith.cmpi eq, %[[KEY]]
  // CHECK-NEXT: scf.if %[[FULL]] {
  // CHECK-NEXT: "test.mask"
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  func.func @outer(%qring: !tile.ring<1, !q>, %kring: !tile.ring<2, !k>, %n: i32) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    scf.for %task = %zero to %n step %one : i32 {
      %q = tile.consume %qring : !tile.ring<1, !q> -> !q
      %has = arith.cmpi slt, %task, %n : i32
      scf.for %segment = %zero to %n step %one : i32 {
        scf.if %has {
          "test.segment"() : () -> ()
        }
        scf.for %key = %zero to %n step %one : i32 {
          %k = tile.consume %kring : !tile.ring<2, !k> -> !k
          %full = arith.cmpi eq, %key, %n : i32
          scf.if %full {
            "test.mask"() : () -> ()
            scf.if %has {
              "test.more"() : () -> ()
            }
          }
          scf.if %has {
            "test.dot"(%q, %k) : (!q, !k) -> ()
          }
        }
      }
    }
    return
  }

  // A condition that leaves the inner loop also leaves the outer one, which has tiles, too.
  // CHECK-LABEL: func.func @both(
  // CHECK-SAME: %[[D:[^:]*]]: i1)
  // CHECK: scf.if %[[D]] {
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: "test.dot"
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  // CHECK-NEXT: } else {
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  // CHECK-NEXT: return
  func.func @both(%qring: !tile.ring<1, !q>, %kring: !tile.ring<2, !k>, %n: i32, %d: i1) attributes {tile.schedule = #schedule} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    scf.for %task = %zero to %n step %one : i32 {
      %q = tile.consume %qring : !tile.ring<1, !q> -> !q
      scf.for %key = %zero to %task step %one : i32 {
        %k = tile.consume %kring : !tile.ring<2, !k> -> !k
        scf.if %d {
          "test.dot"(%q, %k) : (!q, !k) -> ()
        }
      }
    }
    return
  }

  // A gather decides line by line which list it reads.
  // CHECK-LABEL: func.func @lines(
  // CHECK: scf.for
  // CHECK-NEXT: tile.produce
  // CHECK: tile.gather producers
  // CHECK: scf.if
  // CHECK-NOT: scf.for
  // CHECK-LABEL: func.func @mma(
  // CHECK: scf.for
  // CHECK-NEXT: tile.consume
  // CHECK-NEXT: scf.if
  func.func @lines(%keys: !tile.buffer<bf16>, %n: i32, %list: i1, %wide: i64, %ring: !tile.ring<2, !k>) attributes {tile.schedule = #schedule} {
    scf.for %i = %n to %n step %n : i32 {
      %k = tile.produce %ring (%t: !k) {
        tile.gather producers %i to %n from %keys origins %wide strides [64] into %t (%line: i32) {
          %slot = scf.if %list -> i32 {
            scf.yield %line : i32
          } else {
            scf.yield %n : i32
          }
          tile.yield %slot : i32
        } : !tile.buffer<bf16> -> !k
      } : !tile.ring<2, !k> -> !k
    }
    return
  }
  func.func @mma(%ring: !tile.ring<2, !k>, %n: i32, %c: i1) attributes {tile.schedule = #mma} {
    scf.for %i = %n to %n step %n : i32 {
      %k = tile.consume %ring : !tile.ring<2, !k> -> !k
      scf.if %c {
        "test.use"(%k) : (!k) -> ()
      }
    }
    return
  }
}
