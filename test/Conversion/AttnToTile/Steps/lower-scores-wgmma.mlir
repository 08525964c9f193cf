// RUN: attn-opt %s --attn-lower-scores | FileCheck %s

// MMAs of four warps read the left operand from a line on. Those that are started finish where the program says.

!q = !tile.shared<query 64, feature 64, bf16>
!k = !tile.shared<key 64, feature 64, bf16>
!s = !tile.fragment<[query 16, key 64], f32>
!t = !tile.fragment<[key 16, query 64], f32>
!ofTokens = !tile.fragment<[key 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @waits(
  func.func @waits(%q: !q, %k: !k, %line: i32, %of: !ofTokens) -> !s {
    // CHECK-NEXT: %[[STARTED:.*]] = tile.start_mma %arg0 at %arg2, %arg1 :
    // CHECK-NEXT: %[[S:.*]] = tile.wait_mmas 0 of %[[STARTED]] :
    // CHECK-NEXT: %[[SCALED:.*]] = tile.map %[[S]], %arg3 (%[[X:.*]]: f32, %[[FACTOR:.*]]: f32) {
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[X]], %[[FACTOR]] :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: return %[[SCALED]] :
    %s = attn.scores wgmma %q, %k at %line tokens %of : !ofTokens : !q, !k -> !s
    return %s : !s
  }
  // CHECK-LABEL: func.func @starts(
  func.func @starts(%q: !q, %k: !k, %line: i32, %begin: !t) -> !t {
    // CHECK-NEXT: %[[STARTED:.*]] = tile.start_mma %arg1 at %arg2, %arg0 plus %arg3 :
    // CHECK-NEXT: tile.wait_mmas 1 of %[[STARTED]] :
    %s = attn.scores started %q, %k at %line plus %begin : !t : !q, !k -> !t
    %t = tile.wait_mmas 1 of %s : !t -> !t
    return %t : !t
  }
}
