// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a" | FileCheck %s
// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=mma" | FileCheck %s --check-prefix=MMA
// RUN: attn-opt %s --attn-choose-schedule="target=sm_100a" | FileCheck %s --check-prefix=MMA
// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=wgmma" 2>&1 | FileCheck %s --check-prefix=REMARK

// Schedules of a backward pass: of the kernels with stationary rows, and of those with stationary tokens.

!q = tensor<?x8x128xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 128, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 128>

// Fused: tokens are stationary, and rows are walked in tiles of 64. The kernels that begin and end their sums need
// little. Gradients of scores are exchanged in two tiles: of the 232,448 bytes of a block, all but 560 are taken.
// CHECK-LABEL: @fused
// CHECK-SAME: attn.fused
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 1, blocks = 2,
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 231888>
// MMA-LABEL: @fused
// MMA-NOT: attn.fused
// MMA-NOT: wgmma
// MMA: return
func.func @fused(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !state
  %o = attn.finish %1 : !state -> !q
  return %o : !q
}

// In order: two warpgroups have 64 stationary lines each; the tiles that are walked come in boxes.
// CHECK-LABEL: @even
// CHECK-NOT: attn.fused
// CHECK-SAME: tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 80, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: producer_registers = 24, consumer_registers = 240, query_stages = 1, query_copy = boxes 128, key_copies = [boxes 80], value_copies = [boxes 80],
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: query_stages = 1, query_copy = boxes 64, key_copies = [boxes 128], value_copies = [boxes 128],
// CHECK-SAME: epilogue = store>
// MMA-LABEL: @even
// MMA-NOT: wgmma
// MMA: return
func.func @even(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward, attn.ordered = "apart"} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !state
  %o = attn.finish %1 : !state -> !q
  return %o : !q
}

// A long tile of short heads; each warpgroup adds to 64 of its rows. With three stages two exchange tiles of 32 KB would
// need 1,744 bytes more than a block has.
// CHECK-LABEL: @fused64
// CHECK-SAME: attn.fused
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 199840>
func.func @fused64(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x64xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// Shorter values leave memory for both tiles.
// CHECK-LABEL: @narrow
// CHECK-SAME: keys = 128, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 217808>
func.func @narrow(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 64, value_dim = 48, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x48xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 48>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<packed, heads = 2, dim = 64, value_dim = 48, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 48>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 48> -> tensor<?x8x48xbf16>
  return %o : tensor<?x8x48xbf16>
}

// Keys of 192: two stages of both and a tile of sums take nearly all memory.
// CHECK-LABEL: @three_panels
// CHECK-SAME: attn.fused
// CHECK-SAME: keys = 64, warps = 8, stages = 2, blocks = 1,
// CHECK-SAME: exchange_stages = 1, shared_bytes = 231072>
func.func @three_panels(%q: tensor<?x8x192xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 192, value_dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x8x192xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x192xbf16>, !attn.kv<packed, heads = 2, dim = 192, value_dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// In an order, too.
// CHECK-LABEL: @three_panels_in_order
// CHECK-SAME: attn.fused
// CHECK-SAME: exchange_stages = 1, shared_bytes = 231072>
func.func @three_panels_in_order(%q: tensor<?x8x192xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 192, value_dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16> attributes {attn.backward, attn.ordered} {
  %0 = attn.init %q : tensor<?x8x192xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x192xbf16>, !attn.kv<packed, heads = 2, dim = 192, value_dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// A window of heads of 64 is fused, with short tiles.
// CHECK-LABEL: @short
// CHECK-SAME: keys = 64, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 133584>
func.func @short(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x64xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see window(100) scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// With a score region, numbers of rows lie in three rings.
// CHECK-LABEL: @scored
// CHECK-SAME: keys = 64, warps = 8, stages = 3, blocks = 1,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 134192>
func.func @scored(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x64xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %y = math.tanh %s : f32
      attn.yield %y : f32
    } : tensor<?x8x64xbf16>, !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// Windows of longer heads are faster in two launches.
// CHECK-LABEL: @window
// CHECK-NOT: attn.fused
// CHECK: attn.update
func.func @window(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %kv see window(100) scale 0.125 : !q, !kv -> !state
  %o = attn.finish %1 : !state -> !q
  return %o : !q
}

// In an order a window has two launches: a task has rows that the one before it has not.
// CHECK-LABEL: @window_in_order
// CHECK-NOT: attn.fused
// CHECK: attn.update
func.func @window_in_order(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x64xbf16> attributes {attn.backward, attn.ordered} {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see window(100) scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<packed, heads = 2, dim = 64, value_dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// Three heads do not fill 128 lines evenly: stationary rows are gathered, and rows that are walked come in boxes of
// one head. Short heads leave memory for the next task's rows.
// CHECK-LABEL: @uneven
// CHECK-SAME: tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 96,
// CHECK-SAME: query_stages = 2, query_copy = gather,
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 96,
// CHECK-SAME: query_copy = boxes 96,
func.func @uneven(%q: tensor<?x6x64xf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16> {attn.name = "kv"}) -> tensor<?x6x64xf16> attributes {attn.backward, attn.ordered = "apart"} {
  %0 = attn.init %q : tensor<?x6x64xf16> -> !attn.state<heads = 6, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x6x64xf16>, !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16> -> !attn.state<heads = 6, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 6, value_dim = 64> -> tensor<?x6x64xf16>
  return %o : tensor<?x6x64xf16>
}

// Seven heads do not fill 128 lines either; they are fused like others.
// CHECK-LABEL: @seven
// CHECK-SAME: attn.fused
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 128,
// CHECK-SAME: query_copy = boxes 128,
func.func @seven(%q: tensor<?x14x64xf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16> {attn.name = "kv"}) -> tensor<?x14x64xf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x14x64xf16> -> !attn.state<heads = 14, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x14x64xf16>, !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16> -> !attn.state<heads = 14, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 14, value_dim = 64> -> tensor<?x14x64xf16>
  return %o : tensor<?x14x64xf16>
}

// With 96 features, one warpgroup adds to 64, and the other to 32 and as many zeros: tiles of keys and of rows have
// 128.
// CHECK-LABEL: @padded
// CHECK-SAME: attn.fused
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64,
// CHECK-SAME: exchange_stages = 2, shared_bytes = 211408>
func.func @padded(%q: tensor<?x6x96xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 2, dim = 96, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x6x96xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x6x96xbf16> -> !attn.state<heads = 6, value_dim = 96>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x6x96xbf16>, !attn.kv<dense, heads = 2, dim = 96, key = bf16, value = bf16> -> !attn.state<heads = 6, value_dim = 96>
  %o = attn.finish %1 : !attn.state<heads = 6, value_dim = 96> -> tensor<?x6x96xbf16>
  return %o : tensor<?x6x96xbf16>
}

// Sums of these dims and slopes of scores take more registers than wgmma has for the smallest tile.
// CHECK-LABEL: @long
// CHECK-SAME: tile.token_schedule = #tile.schedule<mma,
// REMARK: remark: schedule mma instead of wgmma where a backward pass keeps tokens stationary: wgmma needs sm_90a, and dims that fit its registers
func.func @long(%q: tensor<?x4x160xf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 2, dim = 160, key = f16, value = f16> {attn.name = "kv"}) -> tensor<?x4x160xf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x4x160xf16> -> !attn.state<heads = 4, value_dim = 160>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %y = math.tanh %s : f32
      attn.yield %y : f32
    } : tensor<?x4x160xf16>, !attn.kv<dense, heads = 2, dim = 160, key = f16, value = f16> -> !attn.state<heads = 4, value_dim = 160>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 160> -> tensor<?x4x160xf16>
  return %o : tensor<?x4x160xf16>
}

// Heads of 256: dk and dv have kernels of their own. Those of keys also add to rows, in parts, and have one stage; those of
// values have two.
// CHECK-LABEL: @wide(
// CHECK-SAME: attn.fused
// CHECK-SAME: attn.splits_tokens
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 128, keys = 64,
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 1, blocks = 1,
// CHECK-SAME: exchange_stages = 1, shared_bytes = 230256>
// CHECK-SAME: tile.value_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1,
func.func @wide(%q: tensor<?x4x256xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x4x256xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x4x256xbf16> -> !attn.state<heads = 4, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.0625 : tensor<?x4x256xbf16>, !attn.kv<packed, heads = 2, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 4, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 256> -> tensor<?x4x256xbf16>
  return %o : tensor<?x4x256xbf16>
}

// Kernels of values of 192 walk tiles of 96 rows.
// CHECK-LABEL: @three_panels_of_both(
// CHECK-SAME: attn.fused
// CHECK-SAME: attn.splits_tokens
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 1, blocks = 1,
// CHECK-SAME: tile.value_schedule = #tile.schedule<wgmma, rows = 128, keys = 96, warps = 8, stages = 2, blocks = 1,
func.func @three_panels_of_both(%q: tensor<?x4x192xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 192, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x4x192xbf16> attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x4x192xbf16> -> !attn.state<heads = 4, value_dim = 192>
  %1 = attn.update %0, %q, %kv see causal scale 0.072 : tensor<?x4x192xbf16>, !attn.kv<packed, heads = 2, dim = 192, key = bf16, value = bf16> -> !attn.state<heads = 4, value_dim = 192>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 192> -> tensor<?x4x192xbf16>
  return %o : tensor<?x4x192xbf16>
}

// Apart, too, dk and dv have kernels of their own, for which a tile of 64 rows fits once. Rows with outputs and
// their gradients do not fit 128 lines.
// CHECK-LABEL: @wide_apart
// CHECK-SAME: attn.splits_tokens
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 64, keys = 32,
// CHECK-SAME: tile.token_schedule = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 1, blocks = 1,
// MMA-LABEL: @wide_apart
// MMA-SAME: attn.splits_tokens
// MMA-NOT: wgmma
// MMA: return
func.func @wide_apart(%q: tensor<?x4x256xbf16> {attn.name = "q"}, %kv: !attn.kv<packed, heads = 2, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x4x256xbf16> attributes {attn.backward, attn.ordered = "apart"} {
  %0 = attn.init %q : tensor<?x4x256xbf16> -> !attn.state<heads = 4, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.0625 : tensor<?x4x256xbf16>, !attn.kv<packed, heads = 2, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 4, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 256> -> tensor<?x4x256xbf16>
  return %o : tensor<?x4x256xbf16>
}
