// RUN: attn-opt %s --tile-spread-checks | FileCheck %s

!numbers = !tile.shared<query 64, feature 1, i32>
!some = !tile.shared<query 48, feature 1, i32>

gpu.module @kernels {
  // CHECK-LABEL: func.func @spread
  // CHECK-SAME: (%[[T:[^:]*]]: !tile.shared<query 64, feature 1, i32>, %[[END:[^:]*]]: i32)
  func.func @spread(%t: !numbers, %end: i32) -> i1 {
    // CHECK-NEXT: %[[ANY:.*]] = tile.any_line %[[T]] (%[[P:.*]]: i32) {
    // CHECK-NEXT: %[[HIDES:.*]] = arith.cmpi slt, %[[P]], %[[END]]
    // CHECK-NEXT: tile.yield %[[HIDES]] : i1
    // CHECK-NEXT: } : <query 64, feature 1, i32>
    // CHECK-NEXT: return %[[ANY]]
    %column = tile.load_columns %t : !numbers -> !tile.fragment<[query 64], i32>
    %hides = tile.map %column (%p: i32) {
      %less = arith.cmpi slt, %p, %end : i32
      tile.yield %less : i1
    } : !tile.fragment<[query 64], i32> -> !tile.fragment<[query 64], i1>
    %any = tile.any %hides : !tile.fragment<[query 64], i1>
    return %any : i1
  }

  // 48 lines are not shared evenly.
  // CHECK-LABEL: func.func @uneven
  // CHECK: tile.any %
  func.func @uneven(%t: !some, %end: i32) -> i1 {
    %column = tile.load_columns %t : !some -> !tile.fragment<[query 48], i32>
    %hides = tile.map %column (%p: i32) {
      %less = arith.cmpi slt, %p, %end : i32
      tile.yield %less : i1
    } : !tile.fragment<[query 48], i32> -> !tile.fragment<[query 48], i1>
    %any = tile.any %hides : !tile.fragment<[query 48], i1>
    return %any : i1
  }

  // After the barrier, other warps may have written the tile.
  // CHECK-LABEL: func.func @changed
  // CHECK: tile.any %
  func.func @changed(%t: !numbers, %end: i32) -> i1 {
    %column = tile.load_columns %t : !numbers -> !tile.fragment<[query 64], i32>
    tile.sync block
    %hides = tile.map %column (%p: i32) {
      %less = arith.cmpi slt, %p, %end : i32
      tile.yield %less : i1
    } : !tile.fragment<[query 64], i32> -> !tile.fragment<[query 64], i1>
    %any = tile.any %hides : !tile.fragment<[query 64], i1>
    return %any : i1
  }

  // The mask reads its columns for itself.
  // CHECK-LABEL: func.func @used
  // CHECK: tile.load_columns
  // CHECK: tile.any_line
  // CHECK-NOT: tile.any %
  func.func @used(%t: !numbers, %end: i32) -> (!tile.fragment<[query 64], i32>, i1) {
    %column = tile.load_columns %t : !numbers -> !tile.fragment<[query 64], i32>
    %hides = tile.map %column (%p: i32) {
      %less = arith.cmpi slt, %p, %end : i32
      tile.yield %less : i1
    } : !tile.fragment<[query 64], i32> -> !tile.fragment<[query 64], i1>
    %any = tile.any %hides : !tile.fragment<[query 64], i1>
    return %column, %any : !tile.fragment<[query 64], i32>, i1
  }
}
