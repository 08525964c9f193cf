// RUN: attn-opt %s --attn-lower-mask | FileCheck %s

// Without `if`, positions are compared. The mask is partial if tokens end in the tile, or if a row does not see its
// first or its last position. A token that does not exist is after all rows.

!s = !tile.fragment<[key 16, query 32], f32>
!pos = !tile.fragment<[query 32], i32>
gpu.module @kernels {
  func.func @all(%s: !s, %at: !pos, %first: i32, %end: i32, %pos0: i32) -> !s {
    // CHECK: %[[TOKENS:.*]] = tile.coordinates %arg2 : <[key 16], i32>
    // CHECK-NEXT: %[[POSITIONS:.*]] = tile.map %[[TOKENS]] (%[[T:.*]]: i32) {
    // CHECK-NEXT: %[[EXISTS:.*]] = arith.cmpi slt, %[[T]], %arg3 :
    // CHECK-NEXT: %[[P:.*]] = arith.addi %[[T]], %arg4 :
    // CHECK-NEXT: %[[BEHIND:.*]] = arith.constant 2147483647 :
    // CHECK-NEXT: %[[AT:.*]] = arith.select %[[EXISTS]], %[[P]], %[[BEHIND]] :
    // CHECK-NEXT: tile.yield %[[AT]] :
    // CHECK: %[[FIRST:.*]] = arith.addi %arg2, %arg4 :
    // CHECK-NEXT: %[[C15:.*]] = arith.constant 15 :
    // CHECK-NEXT: %[[LAST:.*]] = arith.addi %[[FIRST]], %[[C15]] :
    // CHECK-NEXT: %[[HIDES:.*]] = tile.map %arg1 (
    // CHECK: tile.yield %false :
    // CHECK: %[[C16:.*]] = arith.constant 16 :
    // CHECK-NEXT: %[[NEXT:.*]] = arith.addi %arg2, %[[C16]] :
    // CHECK-NEXT: %[[TAIL:.*]] = arith.cmpi slt, %arg3, %[[NEXT]] :
    // CHECK-NEXT: %[[ANY:.*]] = tile.any %[[HIDES]] :
    // CHECK-NEXT: %[[PARTIAL:.*]] = arith.ori %[[TAIL]], %[[ANY]] :
    // CHECK-NEXT: %[[M:.*]] = tile.mask %arg0 if %[[PARTIAL]] where %[[POSITIONS]], %arg1 (%[[K:.*]]: i32, %{{.*}}: i32) {
    // CHECK: %[[SEES:.*]] = arith.cmpi slt, %[[K]], %c2147483647_i32 :
    // CHECK-NEXT: tile.yield %[[SEES]] :
    // CHECK: return %[[M]] :
    %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see all : !pos, !s
    return %0 : !s
  }
}
