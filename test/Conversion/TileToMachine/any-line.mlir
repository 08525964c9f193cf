// RUN: attn-opt %s --tile-to-machine | FileCheck %s

// Lane l reads lines l and l + 32, and the lanes vote once.

gpu.module @m {
  func.func @check(%end: i32, %out: !tile.buffer<i32>)
      attributes {tile.threads = 32 : i32, tile.parameters = [], tile.shared_bytes = 256 : i64} {
    %at = arith.constant 0 : i64
    %t = tile.alloc {offset = 0 : i64} : !tile.shared<query 64, feature 1, i32>
    %any = tile.any_line %t (%n: i32) {
      %less = arith.cmpi slt, %n, %end : i32
      tile.yield %less : i1
    } : <query 64, feature 1, i32>
    %word = arith.extui %any : i1 to i32
    tile.write %word to %out[%at] : i32 -> <i32>
    return
  }
}

// CHECK-LABEL: func.func @check
// CHECK: %[[LINE:.*]] = llvm.getelementptr %{{.*}}[%{{.*}}]
// CHECK: %[[A:.*]] = llvm.load %{{.*}} : !llvm.ptr<3> -> i32
// CHECK: %[[LOW:.*]] = arith.cmpi slt, %[[A]]
// CHECK: %[[B:.*]] = llvm.load %{{.*}} : !llvm.ptr<3> -> i32
// CHECK: %[[HIGH:.*]] = arith.cmpi slt, %[[B]]
// CHECK: %[[MINE:.*]] = arith.ori %[[LOW]], %[[HIGH]] : i1
// CHECK: nvvm.vote.sync any %{{.*}}, %[[MINE]]
