// RUN: attn-opt %s --tile-skip-full-masks | FileCheck %s

!scores = !tile.fragment<[query 16, key 32], f32, acc>
!keys = !tile.fragment<[key 32], i32, col>
!numbers = !tile.shared<key 32, feature 1, i32>

gpu.module @kernels {
  // A full tile branches around the mask code.
  // CHECK-LABEL: func.func @unknown
  // CHECK-SAME: (%[[S:[^:]*]]: !tile.fragment<[query 16, key 32], f32, acc>, %[[K:[^:]*]]: {{.*}}, %[[END:[^:]*]]: i32, %[[PARTIAL:[^:]*]]: i1)
  func.func @unknown(%s: !scores, %k: !keys, %end: i32, %partial: i1) -> !scores {
    // CHECK-NEXT: %[[R:.*]] = scf.if %[[PARTIAL]] -> (!tile.fragment<[query 16, key 32], f32, acc>) {
    // CHECK-NEXT: %[[M:.*]] = tile.mask %[[S]] if %[[PARTIAL]] where %[[K]]
    // CHECK: scf.yield %[[M]]
    // CHECK-NEXT: } else {
    // CHECK-NEXT: scf.yield %[[S]]
    // CHECK-NEXT: }
    // CHECK-NEXT: return %[[R]]
    %0 = tile.mask %s if %partial where %k (%key: i32) {
      %seen = arith.cmpi slt, %key, %end : i32
      tile.yield %seen : i1
    } : !scores, !keys -> !scores
    return %0 : !scores
  }

  // CHECK-LABEL: func.func @full
  // CHECK-SAME: (%[[S:[^:]*]]:
  func.func @full(%s: !scores, %k: !keys, %end: i32) -> !scores {
    %partial = arith.constant false
    // CHECK-NOT: tile.mask
    // CHECK: return %[[S]]
    %0 = tile.mask %s if %partial where %k (%key: i32) {
      %seen = arith.cmpi slt, %key, %end : i32
      tile.yield %seen : i1
    } : !scores, !keys -> !scores
    return %0 : !scores
  }

  // CHECK-LABEL: func.func @partial
  func.func @partial(%s: !scores, %k: !keys, %end: i32) -> !scores {
    %partial = arith.constant true
    // CHECK-NOT: scf.if
    // CHECK: %[[M:.*]] = tile.mask
    // CHECK: return %[[M]]
    %0 = tile.mask %s if %partial where %k (%key: i32) {
      %seen = arith.cmpi slt, %key, %end : i32
      tile.yield %seen : i1
    } : !scores, !keys -> !scores
    return %0 : !scores
  }

  // Full tiles do not read the columns that the mask compares.
  // CHECK-LABEL: func.func @columns
  // CHECK-NOT: tile.load_columns
  // CHECK: scf.if
  // CHECK-NEXT: %[[C:.*]] = tile.load_columns
  // CHECK-NEXT: tile.mask %{{.*}} if %{{.*}} where %[[C]]
  // CHECK: } else {
  // CHECK-NOT: tile.load_columns
  // CHECK: return
  func.func @columns(%s: !scores, %t: !numbers, %end: i32, %partial: i1) -> !scores {
    %k = tile.load_columns %t : !numbers -> !keys
    %0 = tile.mask %s if %partial where %k (%key: i32) {
      %seen = arith.cmpi slt, %key, %end : i32
      tile.yield %seen : i1
    } : !scores, !keys -> !scores
    return %0 : !scores
  }

  // A tile that is released before the mask must be read before.
  // CHECK-LABEL: func.func @released
  // CHECK: tile.load_columns
  // CHECK: tile.arrive
  // CHECK: scf.if
  func.func @released(%s: !scores, %t: !numbers, %free: !tile.barriers<1>, %end: i32, %partial: i1) -> !scores {
    %zero = arith.constant 0 : i32
    %k = tile.load_columns %t : !numbers -> !keys
    tile.arrive %free[%zero] : <1>
    %0 = tile.mask %s if %partial where %k (%key: i32) {
      %seen = arith.cmpi slt, %key, %end : i32
      tile.yield %seen : i1
    } : !scores, !keys -> !scores
    return %0 : !scores
  }
}
