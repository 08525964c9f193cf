// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// Under a numerics contract each segment is a part with a state of its own, and its results are folded with those of
// the parts before. The loop carries these, and the task is not read again in between.

!query = tensor<?x8x64xbf16>
!pages = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>

gpu.module @kernels {
  func.func @prefill(%q: !query {attn.name = "q"}, %a: !pages {attn.name = "a"}) -> !query attributes {attn.numerics = "row", tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see all scale 1.0 : !query, !pages -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}

// CHECK: func.func @prefill(%[[Q:arg0]]: {{.*}}, %[[A:arg1]]:
// CHECK: %[[TASK:.*]]:8 = tile.record %[[TASKS:.*]][%[[I:.*]]] first
// CHECK-NEXT: %[[ROWS:.*]] = attn.rows %[[Q]]
// CHECK-NOT: attn.init
// CHECK: %[[NONE:.*]] = attn.no_parts : tensor<?x8x64xbf16>
// CHECK: %[[ALL:.*]] = scf.for %[[J:.*]] = {{.*}} iter_args(%[[BEFORE:.*]] = %[[NONE]])
// CHECK-NEXT: attn.init %[[ROWS]]
// CHECK: %[[PART:.*]] = attn.finish
// CHECK: scf.if
// CHECK-NOT: tile.record
// CHECK: %[[FOLDED:.*]] = attn.fold %[[PART]] of %[[ROWS]] part %{{.*}} after %[[BEFORE]] if
// CHECK: attn.keep %[[FOLDED]] of %[[ROWS]]
// CHECK: scf.yield %[[PART]]
// The task is read again when its results are written.
// CHECK: %[[AGAIN:.*]]:8 = tile.record %[[TASKS]][%[[I]]] :
// CHECK: %[[RESULT:.*]] = attn.fold %[[ALL]] of
// CHECK: attn.write %[[RESULT]]
