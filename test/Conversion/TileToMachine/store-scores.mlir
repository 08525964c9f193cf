// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// Scores of a group's heads become integers of 16 bits beside one another. A sum with 3 * 2^22 has the nearest one in
// its low half, and what is stored of it was made by an instruction of integers: ptxas would convert the float. What the
// L2 is told goes along.
gpu.module @kernels {
  // Heads are columns, of which a lane has two neighbours: a word.
  // CHECK-LABEL: func.func @words(
  // CHECK: %[[ROUNDS:.*]] = llvm.mlir.constant(0x4B400000 : f32) : f32
  // CHECK: llvm.fadd %{{.*}}, %[[ROUNDS]] : f32
  // CHECK: %[[PAIR:.*]] = llvm.shufflevector %{{.*}} [0, 1, 4, 5]
  // CHECK: %[[WORD:.*]] = llvm.bitcast %[[PAIR]]
  // CHECK: llvm.store %[[WORD]], %{{.*}} {alignment = 4 : i64, tile.l2 = "evict_last"} : i32
  // CHECK: llvm.store %{{.*}}, %{{.*}} {alignment = 4 : i64, tile.l2 = "evict_last"} : i32
  // CHECK-NOT: llvm.store
  func.func @words(%x: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[key 16, query 8], f32, acc>
    tile.store_scores %s to %out tokens %n group 4 (%key: i32) {
      tile.yield %key : i32
    } {tile.l2 = "evict_last"} : <[key 16, query 8], f32, acc> -> <i16>
    return
  }

  // An odd group's tokens begin in the middle of words.
  // CHECK-LABEL: func.func @odd(
  // CHECK: llvm.shufflevector
  // CHECK-COUNT-4: llvm.store %{{.*}} : i16
  // CHECK-NOT: llvm.store
  func.func @odd(%x: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[key 16, query 8], f32, acc>
    tile.store_scores %s to %out tokens %n group 3 (%key: i32) {
      tile.yield %key : i32
    } : <[key 16, query 8], f32, acc> -> <i16>
    return
  }

  // Heads are lines, and those behind the first eight are none of four.
  // CHECK-LABEL: func.func @lines(
  // CHECK-COUNT-4: llvm.store %{{.*}} : i16
  // CHECK-NOT: llvm.store
  func.func @lines(%x: f32, %n: i32, %out: !tile.buffer<i16>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[query 16, key 16], f32, acc>
    tile.store_scores %s to %out tokens %n group 4 (%key: i32) {
      tile.yield %key : i32
    } : <[query 16, key 16], f32, acc> -> <i16>
    return
  }
}
