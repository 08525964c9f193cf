// RUN: attn-opt %s --attn-lower-list-mask | FileCheck %s

// A row loads a word for each 32 tokens. The words are shifted to the lane's first token, and a token's bit says whether
// the row sees it.

!s = !tile.fragment<[query 16, key 64], f32>
gpu.module @kernels {
  func.func @list(%s: !s, %first: i32, %packed: i32, %last: i32, %origin: i32, %words: !tile.buffer<i32>) -> !s {
    // CHECK: %[[COLUMN:.*]], %[[OFFSETS:.*]] = tile.lane_coordinates : <[key 64], i32>
    // CHECK: %[[BIT:.*]] = arith.remui %arg1, %c32_i32 :
    // CHECK-NEXT: %[[SHIFT:.*]] = arith.addi %[[COLUMN]], %[[BIT]] :
    // CHECK: %[[WORD:.*]] = arith.divui %arg1, %c32_i32{{.*}} :
    // CHECK-NEXT: %[[W0:.*]] = tile.load_vector %arg5 (%[[LINE:.*]]: i32) {
    // CHECK-NEXT: %[[P0:.*]] = arith.addi %arg2, %[[LINE]] :
    // CHECK-NEXT: %[[P1:.*]] = arith.minsi %[[P0]], %arg3 :
    // CHECK: %[[QUERY:.*]] = arith.divui %[[P1]], %c4_i32 :
    // CHECK-NEXT: %[[ROW:.*]] = arith.subi %[[QUERY]], %arg4 :
    // CHECK: %[[PITCHED:.*]] = arith.muli %[[WORD]], %c128_i32 :
    // CHECK-NEXT: %[[PLACE:.*]] = arith.addi %[[PITCHED]], %[[ROW]] :
    // CHECK-NEXT: tile.yield %[[PLACE]] :
    // CHECK: %[[BITS0:.*]] = tile.map %[[W0]] (%[[X:.*]]: i32) {
    // CHECK-NEXT: %[[Y:.*]] = arith.shrui %[[X]], %[[SHIFT]] :
    // CHECK-NEXT: tile.yield %[[Y]] :
    // CHECK: %[[W1:.*]] = tile.load_vector %arg5 (
    // CHECK: %[[WORD1:.*]] = arith.addi %[[WORD]], %c1_i32 :
    // CHECK-NEXT: arith.muli %[[WORD1]], %c128_i32 :
    // CHECK: %[[BITS1:.*]] = tile.map %[[W1]] (
    // CHECK: %[[M:.*]] = tile.mask %arg0 if %true where %[[OFFSETS]], %[[BITS0]], %[[BITS1]] (%[[AT:.*]]: i32, %[[B0:.*]]: i32, %[[B1:.*]]: i32)
    // CHECK: %[[IS0:.*]] = arith.cmpi slt, %[[AT]], %c32_i32{{.*}} :
    // CHECK-NEXT: %[[B:.*]] = arith.select %[[IS0]], %[[B0]], %[[B1]] :
    // CHECK: %[[IN_WORD:.*]] = arith.remui %[[AT]], %c32_i32{{.*}} :
    // CHECK-NEXT: %[[SHIFTED:.*]] = arith.shrui %[[B]], %[[IN_WORD]] :
    // CHECK: %[[ONE:.*]] = arith.andi %[[SHIFTED]], %c1_i32{{.*}} :
    // CHECK: %[[SEES:.*]] = arith.cmpi ne, %[[ONE]], %c0_i32{{.*}} :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    // CHECK: return %[[M]] :
    %0 = attn.list_mask %s tokens %first rows %packed to %last in %words from %origin group 4 pitch 128 : !tile.buffer<i32>, !s
    return %0 : !s
  }
}
