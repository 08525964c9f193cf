// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// Loops over tasks, segments and tiles; in them the same updates, on parts of the query and of the regions.

!query = tensor<?x8x64xbf16>
!pages = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
!dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 3, blocks = 2, split_keys = true, query_in_registers = true>

gpu.module @kernels {
  func.func @decode(%q: !query {attn.name = "q"}, %a: !pages {attn.name = "a"}, %b: !dense {attn.name = "b"},
                    %sinks: tensor<8xf32> {attn.name = "sink_logits"}) -> !query attributes {tile.schedule = #rows16} {
    %0 = attn.init %q sinks %sinks : !query, tensor<8xf32> -> !state
    %1 = attn.init %q : !query -> !state
    %2 = attn.update %1, %q, %a see causal scale 1.0 : !query, !pages -> !state
    %3 = attn.merge %0, %2 : !state
    %4 = attn.update %3, %q, %b see causal scale 1.0 : !query, !dense -> !state
    %o = attn.finish %4 : !state -> !query
    return %o : !query
  }
}

// CHECK: func.func @decode(%[[Q:arg0]]: {{.*}}, %[[A:arg1]]: {{.*}}, %[[B:arg2]]: {{.*}}, %[[SINKS:arg3]]:
// CHECK-SAME: tile.threads = 128 : i32
// CHECK: tile.start_next
// CHECK: %[[START:.*]]:18 = tile.record
// CHECK: scf.for {{.*}} = %[[START]]#16 to %[[START]]#17
// CHECK-NEXT: tile.record %{{.*}} first %[[START]]#0,
// One warp counts the sink, in the task that is flagged.
// CHECK: %[[ROWS:.*]] = attn.rows %[[Q]][{{.*}}] head %{{.*}} ordinal %{{.*}} from %{{.*}} sink %{{.*}} :
// An update of a merge has a state of its own, which is merged after the loops; so segments carry two states.
// CHECK: %[[S1:.*]] = attn.init %[[ROWS]] :
// CHECK: %[[S2:.*]] = attn.init %[[ROWS]] :
// CHECK: %[[SEGMENTS:.*]]:2 = scf.for {{.*}} iter_args(%[[I1:[^ ]*]] = %[[S1]], %[[I2:[^ ]*]] = %[[S2]])
// CHECK-NEXT: tile.record %{{.*}} first %[[START]]#8,
// CHECK: %[[T1:.*]] = scf.for {{.*}} iter_args(%[[J1:.*]] = %[[I1]])
// CHECK: %[[TILE1:.*]] = attn.tokens %[[A]]
// CHECK-NEXT: %[[U1:.*]] = attn.update %[[J1]], %[[ROWS]], %[[TILE1]] see causal
// CHECK-NEXT: scf.yield %[[U1]]
// CHECK-NEXT: tile.stages = 3
// CHECK: %[[T2:.*]] = scf.for {{.*}} iter_args(%[[J2:.*]] = %[[I2]])
// CHECK: %[[TILE2:.*]] = attn.tokens %[[B]]
// CHECK-NEXT: attn.update %[[J2]], %[[ROWS]], %[[TILE2]] see causal
// CHECK: scf.yield %[[T1]], %[[T2]]
// CHECK: %[[SINK:.*]] = attn.init %[[ROWS]] sinks %[[SINKS]]
// CHECK-NEXT: %[[M1:.*]] = attn.merge %[[SINK]], %[[SEGMENTS]]#0
// CHECK-NEXT: %[[M2:.*]] = attn.merge %[[M1]], %[[SEGMENTS]]#1
// CHECK-NEXT: %[[ALL:.*]] = attn.warps %[[M2]]
// CHECK-NEXT: %[[O:.*]] = attn.finish %[[ALL]]
// CHECK-NEXT: attn.write %[[O]] of %[[ROWS]] part
