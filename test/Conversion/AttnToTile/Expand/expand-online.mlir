// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --tile-fold-constants | FileCheck %s
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --attn-lower-scores --attn-lower-mask --attn-lower-softmax-step --attn-lower-rescale --attn-lower-accumulate | FileCheck %s --check-prefix=STEPS

// Loops carry the values that stand for states, and an update is expanded to its steps. A merge brings both states to
// one unit. After the passes of these steps no attn operation is left.
// STEPS: gpu.module
// STEPS-NOT: attn.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>

gpu.module @kernels {
  func.func @two(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> !query attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %2 = attn.init %q : !query -> !state
    %3 = attn.update %2, %q, %b see all scale 1.0 : !query, !kv -> !state
    %4 = attn.merge %1, %3 : !state
    %o = attn.finish %4 : !state -> !query
    return %o : !query
  }
  func.func @merge(%q: !query {attn.name = "q"}) -> !query attributes {tile.merge_schedule = #merge} {
    %s = attn.parts %q kv_heads 2 : !query -> !state
    %o = attn.finish %s : !state -> !query
    return %o : !query
  }
}

// The function's own arguments are gone.
// CHECK-LABEL: func.func @two(%arg0: !tile.buffer<bf16>,
// CHECK-NOT: attn.
// CHECK: %[[INF:.*]] = arith.constant 0xFF800000
// CHECK: tile.load_vector
// CHECK: %[[M:.*]] = tile.splat %[[INF]]
// CHECK: %[[L:.*]] = tile.splat {{.*}} partial>
// CHECK: %[[ACC:.*]] = tile.splat
// CHECK: %[[ALL:.*]]:6 = scf.for {{.*}} iter_args(%[[M1:[^ ]*]] = %[[M]], %[[L1:[^ ]*]] = %[[L]], %[[A1:[^ ]*]] = %[[ACC]],
// CHECK: %[[ROWS:.*]] = tile.load %{{.*}} -> <[query 16, feature 64], bf16>
// CHECK: scf.for {{.*}} iter_args(%[[MI:.*]] = %[[M1]], %[[LI:.*]] = %[[L1]], %[[SUM:.*]] = %[[A1]])
// CHECK: tile.gather block {{.*}} into %[[KEYS:.*]], %[[VALUES:.*]] (
// CHECK: %[[S:.*]] = attn.scores mma %[[ROWS]], %[[KEYS]] :
// CHECK: %[[SEEN:.*]] = attn.mask %[[S]] at {{.*}} see causal if
// CHECK-NEXT: %[[M2:.*]], %[[L2:.*]], %[[P:.*]], %[[DECAY:.*]], %[[MOVED:.*]] = attn.softmax_step %[[SEEN]], %[[MI]], %[[LI]] unit
// CHECK-NEXT: %[[SCALED:.*]] = attn.rescale %[[SUM]] by %[[DECAY]] if %[[MOVED]] :
// CHECK-NEXT: %[[SUM2:.*]] = attn.accumulate mma %[[P]], %[[VALUES]] into %[[SCALED]] :
// CHECK: scf.yield %[[M2]], %[[L2]], %[[SUM2]] :
// CHECK: attn.mask {{.*}} see all if
// After the loops both are rescaled to the larger maximum.
// CHECK: %[[BOTH:.*]] = tile.map %[[ALL]]#0, %[[ALL]]#3
// CHECK: arith.maxnumf
// CHECK: %[[D1:.*]] = tile.map %[[ALL]]#0, %[[BOTH]]
// CHECK: math.exp2
// CHECK: %[[D2:.*]] = tile.map %[[ALL]]#3, %[[BOTH]]
// CHECK: %[[LENGTH:.*]] = tile.map %[[ALL]]#1, %[[D1]], %[[ALL]]#4, %[[D2]]
// CHECK: tile.map %[[ALL]]#2, %[[D1]], %[[ALL]]#5, %[[D2]]
// CHECK: tile.complete %[[LENGTH]]
// CHECK: tile.reciprocal
// CHECK: tile.store

// A warp holds one row: its maximum, sum, and four columns for each lane. Stored states are read by their weights.
// CHECK-LABEL: func.func @merge(
// CHECK: scf.for {{.*}} iter_args(%[[MAX:[^ ]*]] = %cst{{[^ ]*}}, %[[SUM:[^ ]*]] = %cst{{[^ ]*}}, %{{[^ ]*}} = %cst{{[^ ]*}},
// CHECK: tile.read written
// CHECK: tile.reduce_lanes max
// CHECK: tile.reduce_lanes add
// CHECK: scf.for
// CHECK: tile.read_adjacent
// CHECK: tile.unroll = 16
// CHECK: tile.write_adjacent
