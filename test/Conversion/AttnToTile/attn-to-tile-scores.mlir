// RUN: attn-opt %s --attn-choose-schedule --attn-to-tile --cse | FileCheck %s

#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
!query8 = tensor<?x8x64xbf16>
!paged = !attn.kv<paged<16>, heads = 8, dim = 64, key = bf16, value = bf16>
!state8 = !attn.state<heads = 8, value_dim = 64>

func.func @score(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"},
                 %bias: tensor<8x?xf32> {attn.name = "bias"}) -> !query8 attributes {tile.schedules = [#rows128]} {
  %two = arith.constant 2.0 : f32
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 1.0 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %b = attn.read %bias[%head, %k_pos] : tensor<8x?xf32>
    %t = arith.mulf %s, %two : f32
    %u = arith.addf %t, %b : f32
    attn.yield %u : f32
  } : !query8, !paged -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @score_kernels
// CHECK: func.func @score_rows128(
// CHECK-SAME: "o">, #tile.parameter<buffer, "plan.tasks">
// CHECK-SAME: #tile.parameter<dim, "kv.outer_slots">, #tile.parameter<dim, "kv.max_pages">, #tile.parameter<buffer, "kv.block_table">,
// CHECK-SAME: #tile.parameter<buffer, "kv.k_pages">, #tile.parameter<dim, "kv.k_pages.stride2">, #tile.parameter<dim, "kv.k_pages.stride1">,
// CHECK-SAME: #tile.parameter<buffer, "kv.v_pages">, #tile.parameter<dim, "kv.v_pages.stride2">, #tile.parameter<dim, "kv.v_pages.stride1">,
// CHECK-SAME: #tile.parameter<dim, "bias.dim1">, #tile.parameter<buffer, "bias">, #tile.parameter<dim, "o.stride0">, #tile.parameter<dim, "o.stride1">]
// CHECK-SAME: tile.threads = 256 : i32

// One ring for the block, no exchange between warps; warp w has the 16 rows from 16 w on.
// CHECK: %[[FACTOR:.*]] = arith.mulf %arg{{.*}} fastmath<reassoc,contract>
// CHECK: %[[WARP:.*]] = tile.warp_id
// CHECK: tile.alloc : !tile.shared<query 128, feature 64, bf16>
// CHECK: tile.alloc : !tile.ring<2, <key 64, feature 64, bf16>>
// CHECK-NOT: tile.scratch
// CHECK: tile.gather block
// CHECK-NOT: tile.load %
// CHECK: %[[LOG2E:.*]] = arith.constant 1.442{{.*}} : f32

// Pages of 16, by the instance's row of the block table.
// CHECK: tile.lookup block {{.*}} lines 64 (%[[TOKEN:.*]]: i32) {
// CHECK-NEXT: %[[SLOT:.*]] = tile.paged_slot %{{.*}}[%{{.*}}, %[[TOKEN]]] columns %{{.*}} page 16 apart %{{.*}} : <i32>
// CHECK-NEXT: tile.yield %[[SLOT]]
// CHECK: tile.gather block {{.*}} pitches

// The query stays in shared memory. The region's text follows; its first factor joins the scale at the kernel's
// start.
// CHECK: tile.mma %{{.*}} at %{{.*}} : !tile.shared<query 128, feature 64, bf16>
// CHECK: %[[SCORED:.*]] = tile.map
// CHECK-SAME: (%[[X:.*]]: f32, %[[HEAD:.*]]: i32, %{{.*}}: i32, %[[KEY:.*]]: i32) {
// CHECK: %[[KPOS:.*]] = arith.addi %{{.*}}, %[[KEY]]
// Each index is clamped to its extent.
// CHECK: arith.minsi %[[HEAD]], %c7_i32
// CHECK: arith.maxsi
// CHECK: arith.minsi %[[KPOS]],
// CHECK: arith.maxsi
// CHECK: %[[BIAS:.*]] = tile.read
// CHECK: %[[TWICE:.*]] = arith.mulf %[[X]], %[[FACTOR]]
// CHECK: %[[BIASED:.*]] = arith.addf %[[TWICE]], %[[BIAS]]
// CHECK-NEXT: tile.yield %[[BIASED]]
// CHECK: tile.mask %[[SCORED]]
// CHECK: math.fma %{{.*}}, %[[LOG2E]]
// CHECK: math.exp2
// CHECK: tile.store
// CHECK-NOT: columns
// Warps have synced after the last tile: the next task may load its queries.
// CHECK-NOT: tile.sync
// CHECK: func.func @score_merge(

// Single tokens may come as a list of the plan, unless scores depend on the position of a key.
!tokens = !attn.kv<paged<1>, heads = 8, dim = 64, key = bf16, value = bf16>

func.func @by_row(%q: !query8 {attn.name = "q"}, %kv: !tokens {attn.name = "kv"},
                  %bias: tensor<8x?xf32> {attn.name = "bias"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 1.0 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %b = attn.read %bias[%head, %q_pos] : tensor<8x?xf32>
    %u = arith.addf %s, %b : f32
    attn.yield %u : f32
  } : !query8, !tokens -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @by_row_kernels
// CHECK: func.func @by_row_rows16(
// CHECK-SAME: #tile.parameter<buffer, "plan.slots">
// CHECK-SAME: #tile.parameter<buffer, "plan.bits">

func.func @by_key(%q: !query8 {attn.name = "q"}, %kv: !tokens {attn.name = "kv"},
                  %bias: tensor<8x?xf32> {attn.name = "bias"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 1.0 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %b = attn.read %bias[%head, %k_pos] : tensor<8x?xf32>
    %u = arith.addf %s, %b : f32
    attn.yield %u : f32
  } : !query8, !tokens -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @by_key_kernels
// CHECK: func.func @by_key_rows16(
// CHECK-NOT: plan.slots
// CHECK-NOT: plan.bits
// CHECK: func.func @by_key_merge(

// A soft cap: a tile with an argument past 1/2 takes tanh itself. Any other tile takes a polynomial in the raw score
// whose coefficients include the factors. The cap is left to the softmax, as the unit of its scores.
func.func @capped(%q: !query8 {attn.name = "q"}, %kv: !paged {attn.name = "kv"}) -> !query8 attributes {tile.schedules = [#rows16]} {
  %cap = arith.constant 30.0 : f32
  %inverse = arith.constant 0.03125 : f32
  %0 = attn.init %q : !query8 -> !state8
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %x = arith.mulf %s, %inverse : f32
    %y = math.tanh %x : f32
    %z = arith.mulf %y, %cap : f32
    attn.yield %z : f32
  } : !query8, !paged -> !state8
  %o = attn.finish %1 : !state8 -> !query8
  return %o : !query8
}

// CHECK-LABEL: gpu.module @capped_kernels
// CHECK: %[[F:.*]] = arith.mulf %arg{{.*}} fastmath<reassoc,contract>
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[F]], %[[F]]
// CHECK: %[[P1:.*]] = arith.mulf %[[F]], %{{.*}} : f32
// CHECK: %[[F3:.*]] = arith.mulf %[[F]], %[[SQUARE]]
// CHECK: %[[P3:.*]] = arith.mulf %[[F3]], %{{.*}} : f32
// CHECK: %[[F5:.*]] = arith.mulf %[[F3]], %[[SQUARE]]
// CHECK: %[[P5:.*]] = arith.mulf %[[F5]], %{{.*}} : f32
// CHECK: %[[F7:.*]] = arith.mulf %[[F5]], %[[SQUARE]]
// CHECK: %[[P7:.*]] = arith.mulf %[[F7]], %{{.*}} : f32
// CHECK: %[[TOLOG2:.*]] = arith.constant 43.28{{.*}} : f32
// CHECK: %[[SCORES:.*]] = tile.mma
// CHECK: %[[SIZES:.*]] = tile.map %[[SCORES]]
// CHECK: math.absf
// CHECK: %[[LARGEST:.*]] = tile.reduce max %[[SIZES]]
// CHECK: %[[LARGE:.*]] = tile.map %[[LARGEST]]
// CHECK: arith.cmpf ogt
// CHECK: %[[ANY:.*]] = tile.any %[[LARGE]]
// CHECK: scf.if %[[ANY]]
// CHECK: %[[TANH:.*]] = math.tanh
// CHECK-NEXT: tile.yield %[[TANH]]
// CHECK: } else {
// CHECK-NOT: math.tanh
// CHECK: %[[RAW2:.*]] = arith.mulf %[[RAW:.*]], %[[RAW]]
// CHECK: %[[H5:.*]] = math.fma %[[P7]], %[[RAW2]], %[[P5]]
// CHECK: %[[H3:.*]] = math.fma %[[H5]], %[[RAW2]], %[[P3]]
// CHECK: %[[H1:.*]] = math.fma %[[H3]], %[[RAW2]], %[[P1]]
// CHECK: %[[SHORT:.*]] = arith.mulf %[[RAW]], %[[H1]]
// CHECK-NEXT: tile.yield %[[SHORT]]
// CHECK: arith.mulf %{{.*}}, %[[TOLOG2]]
