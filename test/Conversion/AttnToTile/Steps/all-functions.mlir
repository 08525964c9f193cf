// RUN: attn-opt %s --attn-lower-rescale | FileCheck %s
// RUN: attn-opt %s --attn-lower-rescale --attn-lower-weights | FileCheck %s --check-prefix=BOTH

// A pass lowers its operation wherever it stands in the module's functions, and leaves all others.

!o = !tile.fragment<[query 16, feature 64], f32>
!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
// BOTH-NOT: attn.
gpu.module @kernels {
  // CHECK-LABEL: func.func @loop(
  func.func @loop(%o: !o, %decay: !row, %moved: i1, %n: i32) -> !o {
    // CHECK: scf.for {{.*}} iter_args(%[[O:.*]] = %arg0)
    // CHECK: %[[ONCE:.*]] = scf.if %arg2
    // CHECK: tile.map %[[O]], %arg1 (
    // CHECK: %[[TWICE:.*]] = scf.if %arg2
    // CHECK: tile.map %[[ONCE]], %arg1 (
    // CHECK: scf.yield %[[TWICE]] :
    // CHECK-NEXT: }
    // CHECK-NEXT: return
    %0 = scf.for %i = %n to %n step %n iter_args(%sum = %o) -> (!o) : i32 {
      %1 = attn.rescale %sum by %decay if %moved : !o, !row
      %2 = attn.rescale %1 by %decay if %moved : !o, !row
      scf.yield %2 : !o
    }
    return %0 : !o
  }
  // CHECK-LABEL: func.func @second(
  func.func @second(%o: !o, %decay: !row, %moved: i1, %s: !s, %log2: f32) -> (!o, !s) {
    // CHECK: scf.if %arg2
    // CHECK: attn.weights %arg3
    %0 = attn.rescale %o by %decay if %moved : !o, !row
    %1 = attn.weights %s less %decay unit %log2 : !row, !s
    return %0, %1 : !o, !s
  }
}
