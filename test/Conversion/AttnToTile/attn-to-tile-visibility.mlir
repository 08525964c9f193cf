// RUN: attn-opt %s --attn-choose-schedule --attn-to-tile --cse | FileCheck %s

#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
!query8 = tensor<?x8x64xbf16>
!paged = !attn.kv<paged<16>, heads = 8, dim = 64, key = bf16, value = bf16>
!state8 = !attn.state<heads = 8, value_dim = 64>

// Head classes: a task names an ordinal, whose KV head is looked up, and a class, whose mask applies. All masks lie
// in a branch for tiles that some row does not see whole: shared compares are not made for whole tiles.
func.func @classes(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"},
                   %classes: tensor<8xi32> {attn.name = "classes"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see window(9) heads %classes {retrieval: see all, streaming: see sink(4) | recent(5)} scale 1.0
      : !query8, !paged, tensor<8xi32> -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @classes_kernels
// CHECK: func.func @classes_rows16(
// CHECK-SAME: #tile.parameter<buffer, "plan.segments">, #tile.parameter<buffer, "ordinal_heads">,
// CHECK-SAME: #tile.parameter<end>, #tile.parameter<end index 1>, #tile.parameter<end index 2>, #tile.parameter<dim, "o.stride0">, #tile.parameter<dim, "o.stride1">]
// CHECK: %[[FT:.*]]:18 = tile.record
// CHECK: scf.for {{.*}} %[[T2:[^ ]*]] = %[[FT]]#2, {{.*}} %[[T7:[^ ]*]] = %[[FT]]#7,
// CHECK-NEXT: %[[TASKORDINAL:.*]] = arith.extsi %[[T2]]
// CHECK-NEXT: %[[KVHEAD:.*]] = tile.read %{{.*}}[%[[TASKORDINAL]]]
// CHECK: arith.extsi %[[KVHEAD]] : i32 to i64
// CHECK: %[[PART:.*]] = arith.ori
// CHECK-NOT: arith.cmpi
// CHECK: scf.if %[[PART]] -> (!tile.fragment<[query 16, key 16], f32>) {
// CHECK: %[[RETRIEVAL:.*]] = arith.cmpi eq, %[[T7]], %c0_i32
// CHECK: %[[ONE:.*]] = tile.mask %{{.*}} if %[[RETRIEVAL]]
// CHECK: %[[STREAMING:.*]] = arith.cmpi eq, %[[T7]], %c1_i32
// CHECK: tile.mask %[[ONE]] if %[[STREAMING]]
// CHECK-SAME: (%[[COL:[^ ]*]]: i32, %[[SHOWN:[^ ]*]]: i32, %{{.*}}: i32, %[[RECENT:[^ ]*]]: i32, %{{.*}}: i32) {
// CHECK: arith.cmpi sge, %[[COL]], %[[SHOWN]]
// CHECK: %[[SINK:.*]] = arith.cmpi slt, %[[COL]], %{{.*}}
// CHECK: arith.cmpi sge, %[[COL]], %[[RECENT]]
// CHECK: arith.ori %[[SINK]],

// The plan numbers outputs by ordinal.
// CHECK: func.func @classes_merge(
// CHECK: tile.read_range
// CHECK: %[[NUMBER:.*]] = tile.read %
// CHECK: %[[INROW:.*]] = arith.remui %[[NUMBER]], %c8_i32
// CHECK: %[[SLOT64:.*]] = arith.extsi %[[INROW]]
// CHECK: %[[HEAD:.*]] = tile.read %{{.*}}[%[[SLOT64]]]
// CHECK: %[[BY:.*]] = arith.subi %[[HEAD]], %[[INROW]]
// CHECK: arith.addi %[[NUMBER]],

// Scores that a cap bounds need no maximum if weights have the range of f32: a row keeps the unit of the first tile
// in which it sees something.
func.func @bounded(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %cap = arith.constant 27.5 : f32
  %inverse = arith.constant 0.02 : f32
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %x = arith.mulf %s, %inverse : f32
    %y = math.tanh %x fastmath<afn> : f32
    %z = arith.mulf %y, %cap : f32
    %other = arith.negf %z : f32
    %near = arith.cmpi eq, %q_pos, %k_pos : i32
    %picked = arith.select %near, %other, %z : f32
    %sum = arith.subf %picked, %z : f32
    attn.yield %sum : f32
  } : !query8, !paged -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @bounded_kernels
// CHECK: %[[SOME:.*]] = tile.any
// CHECK-NEXT: %[[UNIT:.*]] = scf.if %[[SOME]]
// CHECK: tile.reduce max
// CHECK: } else {
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NOT: tile.reduce max
// CHECK: math.exp2
// CHECK: tile.reduce add
// CHECK-NOT: tile.any
// CHECK-LABEL: func.func @bounded_merge

// The cap of this region is too high for that.
func.func @high(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %cap = arith.constant 56.0 : f32
  %inverse = arith.constant 0.02 : f32
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %x = arith.mulf %s, %inverse : f32
    %y = math.tanh %x fastmath<afn> : f32
    %z = arith.mulf %y, %cap : f32
    attn.yield %z : f32
  } : !query8, !paged -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @high_kernels
// CHECK: tile.reduce max

// This region has an addend that has no bound.
func.func @unbounded(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %cap = arith.constant 30.0 : f32
  %inverse = arith.constant 0.02 : f32
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %x = arith.mulf %s, %inverse : f32
    %y = math.tanh %x fastmath<afn> : f32
    %z = arith.mulf %y, %cap : f32
    %sum = arith.addf %z, %s : f32
    attn.yield %sum : f32
  } : !query8, !paged -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @unbounded_kernels
// CHECK: tile.reduce max

// Pages of one token: the plan may have a list of slots, with a bit for each slot and each row of the tile.
!single = !attn.kv<paged<1>, heads = 8, dim = 64, key = bf16, value = bf16>
func.func @drafts(%q: !query8 {attn.name = "q"}, %kv: !single {attn.name = "kv"}) -> !query8 attributes {tile.schedules = [#rows128]} {
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query8, !single -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @drafts_kernels
// CHECK: tile.lookup block {{.*}} lines 64 (%[[TOKEN:.*]]: i32) {
// CHECK: %[[LIST:.*]] = arith.cmpi slt, %[[INSTANCE:.*]], %c0_i32
// CHECK: scf.if %[[LIST]]
// CHECK: %[[PLACE:.*]] = arith.extsi %[[TOKEN]]
// CHECK: tile.read %{{.*}}[%[[PLACE]]]
// CHECK: } else {
// CHECK-NEXT: tile.paged_slot %{{.*}}[%[[INSTANCE]], %[[TOKEN]]]
// CHECK: tile.gather block {{.*}} pitches
// CHECK: %[[SCORES:.*]] = tile.mma
// CHECK: %[[MASKED:.*]] = scf.if
// CHECK: tile.load_vector
// CHECK: tile.load_vector
// CHECK: tile.mask %[[SCORES]]
// CHECK: arith.shrui
// CHECK: arith.andi
// A list is masked by its bits alone.
// CHECK: %[[ORDINARY:.*]] = arith.cmpi sge, %[[INSTANCE]], %c0_i32
// CHECK: %[[PARTIAL:.*]] = arith.andi %{{.*}}, %[[ORDINARY]]
// CHECK: tile.mask %[[MASKED]] if %[[PARTIAL]]
