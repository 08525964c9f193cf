// RUN: attn-opt %s --tile-read-ahead | FileCheck %s

!rows = !tile.fragment<[query 16, key 16], f32>
!keys = !tile.shared<key 16, feature 16, bf16>
!queries = !tile.fragment<[query 16, feature 16], bf16>

// Known fields of the first record are carried from the start; the next record is requested where this one is
// read again, and an inner loop's after its MMA, in front of what reads memory.
gpu.module @kernels {
  func.func @nest(%tasks: !tile.buffer<i32>, %parts: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %b: i32, %t0: i32, %t1: i32,
                  %q: !queries, %k: !keys, %zero: !rows, %at: i64) {
    %one = arith.constant 1 : i32
    scf.for %i = %a to %b step %one : i32 {
      %t:2 = tile.record %tasks[%i] first %t0, %t1 : <i32> -> i32, i32
      %all = scf.for %j = %t#0 to %t#1 step %one iter_args(%s = %zero) -> !rows : i32 {
        %p = tile.record %parts[%j] : <i32> -> i32
        tile.write %p to %out[%at] : i32 -> <i32>
        %d = tile.mma %q, %k, %s : !queries, !keys, !rows -> !rows
        %old = tile.read %out[%at] : <i32> -> i32
        tile.write %old to %out[%at] : i32 -> <i32>
        scf.yield %d : !rows
      }
      %again:2 = tile.record %tasks[%i] : <i32> -> i32, i32
      tile.write %again#1 to %out[%at] : i32 -> <i32>
    }
    return
  }
}

// CHECK-LABEL: func.func @nest(
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[T0:arg5]], %[[T1:arg6]]
// CHECK-NEXT: %[[P0:.*]] = tile.record %arg1[%[[T0]]] if %[[SOME]] : <i32> -> i32
// CHECK: scf.for %[[I:.*]] = %arg3 to %arg4 {{.*}} iter_args(%[[B:.*]] = %[[T0]], %[[E:.*]] = %[[T1]], %[[P:.*]] = %[[P0]])
// CHECK-NEXT: scf.for %[[J:.*]] = %[[B]] to %[[E]] {{.*}} iter_args(%{{.*}} = %{{.*}}, %[[PJ:.*]] = %[[P]])
// CHECK-NEXT: tile.write %[[PJ]]
// CHECK: tile.mma
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[J]], %{{.*}}
// CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[E]]
// CHECK-NEXT: %[[PN:.*]] = tile.record %arg1[%[[NEXT]]] if %[[MORE]]
// CHECK-NEXT: tile.read
// CHECK-NEXT: tile.write
// CHECK-NEXT: scf.yield %{{.*}}, %[[PN]]
// CHECK: %[[AFTER:.*]]:2 = tile.record %arg0[%{{.*}}] if %{{.*}} :
// CHECK-NEXT: tile.record %arg0[%[[I]]] :
// CHECK-NEXT: tile.write
// CHECK-NEXT: %[[ANY:.*]] = arith.cmpi slt, %[[AFTER]]#0, %[[AFTER]]#1
// CHECK-NEXT: %[[FIRST:.*]] = tile.record %arg1[%[[AFTER]]#0] if %[[ANY]]
// CHECK: scf.yield %[[AFTER]]#0, %[[AFTER]]#1, %[[FIRST]]

// Warps that only copy read a record in place.
// CHECK-LABEL: func.func @copies(
// CHECK: scf.for %[[I:[^ ]*]] = %arg2 to %arg3 step %{{[^ ]*}} : i32 {
// CHECK-NEXT: tile.record %arg0[%[[I]]]
gpu.module @producers {
  func.func @copies(%tasks: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %b: i32, %at: i64) {
    %one = arith.constant 1 : i32
    scf.for %i = %a to %b step %one : i32 {
      %t = tile.record %tasks[%i] : <i32> -> i32
      tile.write %t to %out[%at] : i32 -> <i32>
    }
    return
  }
}

// Nothing behind this MMA waits for memory: the record is requested at the end.
// CHECK-LABEL: func.func @writes(
// CHECK: tile.mma
// CHECK-NEXT: tile.write
// CHECK: tile.record %arg1[%{{.*}}] if
// CHECK-NEXT: scf.yield
gpu.module @stores {
  func.func @writes(%tasks: !tile.buffer<i32>, %parts: !tile.buffer<i32>, %out: !tile.buffer<i32>, %a: i32, %b: i32, %t0: i32, %t1: i32,
                    %q: !queries, %k: !keys, %zero: !rows, %at: i64) {
    %one = arith.constant 1 : i32
    scf.for %i = %a to %b step %one : i32 {
      %t:2 = tile.record %tasks[%i] first %t0, %t1 : <i32> -> i32, i32
      %all = scf.for %j = %t#0 to %t#1 step %one iter_args(%s = %zero) -> !rows : i32 {
        %p = tile.record %parts[%j] : <i32> -> i32
        %d = tile.mma %q, %k, %s : !queries, !keys, !rows -> !rows
        tile.write %p to %out[%at] : i32 -> <i32>
        scf.yield %d : !rows
      }
      tile.write %i to %out[%at] : i32 -> <i32>
    }
    return
  }
}
