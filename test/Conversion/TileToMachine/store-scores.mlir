// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// Scores of a group's heads become neighbouring integers of 16 bits. A sum with 3 * 2^22 + 2^15 has the nearest
// integer plus 2^15 in its low half. The stored half is made by an integer instruction, because ptxas would convert
// the float. Hints for the L2 are passed on. If all keys of the tile exist, none is tested, and addresses are
// constants after the first one.
gpu.module @kernels {
  // Heads are columns, of which a lane has two neighbours: a word.
  // CHECK-LABEL: func.func @words(
  // CHECK: %[[ROUNDS:.*]] = llvm.mlir.constant(0x4B408000 : f32) : f32
  // CHECK: llvm.intr.fma(%{{.*}}, %{{.*}}, %[[ROUNDS]]) : (f32, f32, f32) -> f32
  // CHECK: %[[PAIR:.*]] = llvm.shufflevector %{{.*}} [0, 1, 4, 5]
  // CHECK: %[[WORD:.*]] = llvm.bitcast %[[PAIR]]
  // CHECK: %[[FIRST:.*]] = llvm.getelementptr
  // CHECK: %[[WHOLE:.*]] = arith.cmpi sgt, %{{.*}}, %c15_i32
  // CHECK: scf.if %[[WHOLE]]
  // CHECK: %[[HEAD:.*]] = arith.cmpi slt, %{{.*}}, %c4_i32
  // CHECK: scf.if %[[HEAD]]
  // CHECK: llvm.store %[[WORD]], %{{.*}} {alignment = 4 : i64, tile.l2 = "evict_last"} : i32
  // CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[FIRST]][%c32_i64]
  // CHECK: llvm.store %{{.*}}, %[[PLACE]] {alignment = 4 : i64, tile.l2 = "evict_last"} : i32
  // CHECK: else
  // CHECK-COUNT-2: llvm.store %{{.*}}, %{{.*}} {alignment = 4 : i64, tile.l2 = "evict_last"} : i32
  // CHECK-NOT: llvm.store
  func.func @words(%x: f32, %u: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[key 16, query 8], f32, acc>
    tile.store_scores %s times %u to %out tokens %n group 4 apart 1 (%key: i32) {
      tile.yield %key : i32
    } {tile.l2 = "evict_last"} : <[key 16, query 8], f32, acc> -> <i16>
    return
  }

  // An odd group's tokens begin in the middle of words. Eight keys of every second slot are 48 numbers, a head one
  // more.
  // CHECK-LABEL: func.func @odd(
  // CHECK: llvm.shufflevector
  // CHECK: llvm.getelementptr %{{.*}}[%c48_i64]
  // CHECK: llvm.getelementptr %{{.*}}[%c49_i64]
  // CHECK: else
  // CHECK-COUNT-4: llvm.store %{{.*}} : i16
  // CHECK-NOT: llvm.store
  func.func @odd(%x: f32, %u: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[key 16, query 8], f32, acc>
    tile.store_scores %s times %u to %out tokens %n group 3 apart 2 (%key: i32) {
      tile.yield %key : i32
    } : <[key 16, query 8], f32, acc> -> <i16>
    return
  }

  // Heads are lines, and a group of four has no heads past the first eight lines.
  // CHECK-LABEL: func.func @lines(
  // CHECK-COUNT-8: llvm.store %{{.*}} : i16
  // CHECK-NOT: llvm.store
  func.func @lines(%x: f32, %u: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[query 16, key 16], f32, acc>
    tile.store_scores %s times %u to %out tokens %n group 4 apart 1 (%key: i32) {
      tile.yield %key : i32
    } : <[query 16, key 16], f32, acc> -> <i16>
    return
  }
}
