// RUN: attn-opt %s --attn-lower-group-scores | FileCheck %s

// A group's product is multiplied by its scale, and its zero point times the sum of the row is added. Groups are
// added in order.

!q = !tile.fragment<[query 16, feature 128], f16>
!k = !tile.fragment<[key 32, feature 128], f16>
!col = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
!s = !tile.fragment<[query 16, key 32], f32>
gpu.module @kernels {
  func.func @groups(%q: !q, %k: !k, %c0: !col, %c1: !col, %z0: !col, %z1: !col, %n0: !row, %n1: !row, %f: f32) -> !s {
    // CHECK: %[[Q0:.*]] = tile.part %arg0 from 0 : {{.*}} -> <[query 16, feature 64], f16>
    // CHECK-NEXT: %[[K0:.*]] = tile.part %arg1 from 0 : {{.*}} -> <[key 32, feature 64], f16>
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[NONE:.*]] = tile.splat %[[ZERO]] :
    // CHECK-NEXT: %[[D0:.*]] = tile.mma %[[Q0]], %[[K0]], %[[NONE]] :
    // CHECK-NEXT: %[[S0:.*]] = tile.map %[[D0]], %arg2, %arg4, %arg6 (%[[D:.*]]: f32, %[[C:.*]]: f16, %[[Z:.*]]: f16, %[[N:.*]]: f32)
    // CHECK-NEXT: %[[ZW:.*]] = arith.extf %[[Z]] :
    // CHECK-NEXT: %[[REST:.*]] = arith.mulf %[[ZW]], %[[N]] :
    // CHECK-NEXT: %[[CW:.*]] = arith.extf %[[C]] :
    // CHECK-NEXT: %[[SUM:.*]] = math.fma %[[CW]], %[[D]], %[[REST]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: %[[Q1:.*]] = tile.part %arg0 from 64 :
    // CHECK-NEXT: %[[K1:.*]] = tile.part %arg1 from 64 :
    // CHECK: %[[D1:.*]] = tile.mma %[[Q1]], %[[K1]], %{{.*}} :
    // CHECK-NEXT: %[[S1:.*]] = tile.map %[[D1]], %arg3, %arg5, %arg7, %[[S0]] (%{{.*}}: f32, %{{.*}}: f16, %[[Z1:.*]]: f16, %[[N1:.*]]: f32, %[[LAST:.*]]: f32)
    // CHECK-NEXT: %[[Z1W:.*]] = arith.extf %[[Z1]] :
    // CHECK-NEXT: %[[REST1:.*]] = math.fma %[[Z1W]], %[[N1]], %[[LAST]] :
    // CHECK: math.fma %{{.*}}, %{{.*}}, %[[REST1]] :
    // CHECK: %[[SCALED:.*]] = tile.map %[[S1]] (%[[X:.*]]: f32)
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[X]], %arg8 :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: return %[[SCALED]] :
    %0 = "attn.group_scores"(%q, %k, %c0, %c1, %z0, %z1, %n0, %n1, %f) <{group = 64 : i64, operandSegmentSizes = array<i32: 1, 1, 2, 2, 2, 1>}>
        : (!q, !k, !col, !col, !col, !col, !row, !row, f32) -> !s
    return %0 : !s
  }
}
