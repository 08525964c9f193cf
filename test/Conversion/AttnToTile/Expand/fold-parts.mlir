// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --tile-fold-constants | FileCheck %s

// Parts of rows are folded by their outputs and LSEs. Outputs of the parts before are in memory, LSEs in registers. A
// mask hides one side of a tile: the tokens in front of those that rows see, or those behind them.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>

gpu.module @kernels {
  func.func @fold(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}) -> !query attributes {attn.numerics = "row", tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
  func.func @window(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}) -> !query attributes {attn.numerics = "row", tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see window(99) scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}

// CHECK-LABEL: func.func @fold(
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG: %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[MINUS:.*]] = arith.constant -0.000000e+00 : f32
// CHECK: scf.for
// CHECK: scf.if %{{.*}} -> (!tile.fragment<[query 16, key 64], f32>) {
// CHECK: %[[STARTS:.*]] = arith.cmpi slt, %[[KEY:.*]], %[[BEGIN:[^ ]*]] : i32
// CHECK-NEXT: %[[FRONT:.*]] = attn.mask {{.*}} tokens %[[KEY]] to {{.*}} see causal if %[[STARTS]] begin %[[BEGIN]] front
// CHECK-NEXT: %[[ENDS:.*]] = arith.cmpi slt,
// CHECK-NEXT: %[[BEHIND:.*]] = attn.mask %[[FRONT]] {{.*}} see causal if %[[ENDS]] begin %[[BEGIN]] behind
// CHECK-NEXT: scf.yield %[[BEHIND]]
// A sum of zero becomes +0, whatever its sign.
// CHECK: tile.map
// CHECK: math.fma %{{.*}}, %{{.*}}, %[[ZERO]]
// CHECK: tile.load_lanes
// CHECK-NOT: tile.load_lines
// A part without tokens has a factor of -0 beside one with tokens.
// CHECK: arith.select %{{.*}}, %[[ZERO]], %[[MINUS]]
// CHECK: tile.store_lanes
// CHECK-NOT: tile.store_lines
// CHECK: scf.yield

// CHECK-LABEL: func.func @window(
// CHECK: arith.cmpi sge
// CHECK: attn.mask {{.*}} see window(99) ends %{{.*}} begin %{{.*}} front
// CHECK: attn.mask {{.*}} see window(99) ends %{{.*}} begin %{{.*}} behind
