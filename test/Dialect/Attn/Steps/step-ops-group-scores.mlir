// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

// Products of groups print as they are parsed, with several groups and with one.

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!token = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
!s = !tile.fragment<[query 16, key 32], f32>
func.func @group_scores(%q: !q, %k: !k, %c: !token, %z: !token, %n: !row, %f: f32) {
  // CHECK: attn.group_scores %arg0, %arg1 scales %arg2, %arg2 : {{.*}} zeros %arg3, %arg3 : {{.*}} sums %arg4, %arg4 : {{.*}} times %arg5 per 32 :
  %0 = "attn.group_scores"(%q, %k, %c, %c, %z, %z, %n, %n, %f) <{group = 32 : i64, operandSegmentSizes = array<i32: 1, 1, 2, 2, 2, 1>}> : (!q, !k, !token, !token, !token, !token, !row, !row, f32) -> !s
  // CHECK: attn.group_scores %arg0, %arg1 scales %arg2 : {{.*}} zeros %arg3 : {{.*}} sums %arg4 : 
  %1 = "attn.group_scores"(%q, %k, %c, %z, %n) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (!q, !k, !token, !token, !row) -> !s
  return
}
