// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// If warpgroups compute, one loop over a segment's tiles does the updates of all operands.

!query = tensor<?x8x64xbf16>
!pages = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
!dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>

gpu.module @kernels {
  func.func @prefill(%q: !query {attn.name = "q"}, %a: !pages {attn.name = "a"}, %b: !dense {attn.name = "b"}) -> !query attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see all scale 1.0 : !query, !pages -> !state
    %2 = attn.update %1, %q, %b see causal scale 1.0 : !query, !dense -> !state
    %o = attn.finish %2 : !state -> !query
    return %o : !query
  }
}

// CHECK: func.func @prefill(%[[Q:arg0]]: {{.*}}, %[[A:arg1]]: {{.*}}, %[[B:arg2]]:
// CHECK-SAME: tile.threads = 384 : i32
// CHECK: %[[WARP:.*]] = tile.warp_id
// CHECK: %[[CONSUMER:.*]] = arith.subi %[[WARP]], %c4_i32
// CHECK: %[[FIRST:.*]] = arith.muli %[[CONSUMER]], %c16_i32
// CHECK: %[[GROUP:.*]] = arith.muli
// CHECK: %[[START:.*]]:18 = tile.record
// CHECK: scf.for %[[I:.*]] = %[[START]]#16 to %[[START]]#17
// CHECK-NEXT: %[[TASK:.*]]:8 = tile.record %[[TASKS:.*]][%[[I]]] first %[[START]]#0,
// CHECK-NEXT: %[[ROWS:.*]] = attn.rows %[[Q]][{{.*}}] {{.*}} from %[[FIRST]] group %[[GROUP]]
// CHECK: %[[INIT:.*]] = attn.init %[[ROWS]]
// CHECK: %[[ALL:.*]] = scf.for %[[J:.*]] = {{.*}} iter_args(%[[S:.*]] = %[[INIT]])
// CHECK-NEXT: %[[SEGMENT:.*]]:8 = tile.record %{{.*}}[%[[J]]] first %[[START]]#8,
// A warpgroup without rows takes part in the loop, and computes nothing.
// CHECK: %[[HAS:.*]] = arith.cmpi slt, %[[GROUP]], %[[TASK]]#1
// CHECK: scf.for %[[KEY:.*]] = %[[SEGMENT]]#2 to %[[SEGMENT]]#3 {{.*}} iter_args(%[[T:.*]] = %[[S]])
// CHECK-NEXT: %[[IN_A:.*]] = attn.tokens %[[A]][%[[SEGMENT]]#1] from %[[KEY]]
// CHECK-NEXT: %[[IN_B:.*]] = attn.tokens %[[B]][%[[SEGMENT]]#1] from %[[KEY]]
// CHECK-NEXT: scf.if %[[HAS]]
// CHECK-NEXT: %[[UA:.*]] = attn.update %[[T]], %[[ROWS]], %[[IN_A]] see all
// CHECK-NEXT: %[[UB:.*]] = attn.update %[[T]], %[[ROWS]], %[[IN_B]] see causal
// CHECK-NEXT: %[[ONE:.*]] = attn.one_of %[[SEGMENT]]#0 of %[[UA]], %[[UB]]
// CHECK-NEXT: scf.yield %[[ONE]]
// CHECK: scf.yield %[[T]]
// The task is read again when its results are written.
// CHECK: %[[AGAIN:.*]]:8 = tile.record %[[TASKS]][%[[I]]] :
// CHECK-NEXT: %[[SAME:.*]] = attn.rows %[[Q]][%[[AGAIN]]#0 for %[[AGAIN]]#1]
// CHECK: attn.finish %[[ALL]]
// CHECK-NEXT: attn.write %{{.*}} of %[[SAME]] part %[[AGAIN]]#5
