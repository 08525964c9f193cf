// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=wgmma" | FileCheck %s

// The fields of a schedule with roles and their reasons: the stores decide copies, memory decides stages and the
// epilogue, and measurements decide ping-pong and registers.

// Boxes are whole tiles; boxes of queries are a warpgroup's rows, and results are stored through them by TMA. Heads
// of 128 have no ping-pong. The merge has sixteen parts in flight.
// CHECK-LABEL: @dense
// CHECK-SAME: tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
// CHECK-SAME: #tile.schedule<mma, rows = 16, {{[^>]*}}query_in_registers = true, shared_bytes = 102400>
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false,
// CHECK-SAME: producers = 4, producer_registers = 40, consumer_registers = 232, query_stages = 2, query_copy = boxes 64,
// CHECK-SAME: key_copies = [boxes 128], value_copies = [boxes 128], value_boxes = 0, ping_pong = false, epilogue = send, shared_bytes = 197704>
func.func @dense(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Boxes are pages, and values lie page by page.
// CHECK-LABEL: @paged
// CHECK-SAME: #tile.schedule<wgmma,
// CHECK-SAME: key_copies = [boxes 16], value_copies = [boxes 16], value_boxes = 16,
func.func @paged(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Each region comes in its own boxes; values then lie as one tile.
// CHECK-LABEL: @regions
// CHECK-SAME: #tile.schedule<wgmma,
// CHECK-SAME: key_copies = [boxes 16, boxes [[KEYS:[0-9]+]]], value_copies = [boxes 16, boxes [[KEYS]]], value_boxes = 0,
func.func @regions(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}, %kv1: !attn.kv<packed, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv1"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %2 = attn.update %1, %q, %kv1 see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<packed, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %2 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Tokens that lie apart are gathered, and so are queries, which takes more registers; results are stored.
// CHECK-LABEL: @tokens
// CHECK-SAME: #tile.schedule<wgmma,
// CHECK-SAME: producer_registers = 56, consumer_registers = 224, query_stages = 2, query_copy = gather, key_copies = [gather], value_copies = [gather],
// CHECK-SAME: value_boxes = 0, ping_pong = false, epilogue = store,
func.func @tokens(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<paged<1>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<1>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Seven heads do not fill boxes of queries.
// CHECK-LABEL: @uneven
// CHECK-SAME: #tile.schedule<wgmma,
// CHECK-SAME: producer_registers = 56, consumer_registers = 224, query_stages = 2, query_copy = gather, key_copies = [boxes [[#]]],
// CHECK-SAME: epilogue = store
func.func @uneven(%q: tensor<?x28x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 4, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x28x128xbf16> {
  %0 = attn.init %q : tensor<?x28x128xbf16> -> !attn.state<heads = 28, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x28x128xbf16>, !attn.kv<dense, heads = 4, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 28, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 28, value_dim = 128> -> tensor<?x28x128xbf16>
  return %o : tensor<?x28x128xbf16>
}

// Three consumers share the registers that the producer leaves, and ping-pong.
// CHECK-LABEL: @short
// CHECK-SAME: #tile.schedule<wgmma, rows = 192, keys = 128, warps = 12,
// CHECK-SAME: producer_registers = 32, consumer_registers = 160, query_stages = 2, query_copy = boxes 64,
// CHECK-SAME: ping_pong = true, epilogue = send
func.func @short(%q: tensor<?x8x64xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x64xbf16> {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// Shared memory holds one tile of queries, which leaves none for results; the merge does two loads of eight parts.
// CHECK-LABEL: @long
// CHECK-SAME: parts = 8>
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 64,
// CHECK-SAME: query_stages = 1, query_copy = boxes 128,
// CHECK-SAME: ping_pong = true, epilogue = store, shared_bytes = 197688>
func.func @long(%q: tensor<?x8x256xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x256xbf16> {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// A score region is worth ping-pong.
// CHECK-LABEL: @scored
// CHECK-SAME: #tile.schedule<wgmma,
// CHECK-SAME: ping_pong = true, epilogue = send
func.func @scored(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x128xbf16> {
  %cap = arith.constant 30.0 : f32
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    %x = math.tanh %s : f32
    %y = arith.mulf %x, %cap : f32
    attn.yield %y : f32
  } : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Tiles, queries in two stages and rings would fill 226 KiB, and the barriers between and after the rings 1,096
// bytes: more than a block has.
// CHECK-LABEL: @barely
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 96,
// CHECK-SAME: query_stages = 1,
// CHECK-SAME: epilogue = store, shared_bytes = 187448>
func.func @barely(%q: tensor<?x8x176xbf16> {attn.name = "q"}, %kv0: !attn.kv<dense, heads = 8, dim = 176, value_dim = 192, key = bf16, value = bf16> {attn.name = "kv0"}) -> tensor<?x8x192xbf16> {
  %0 = attn.init %q : tensor<?x8x176xbf16> -> !attn.state<heads = 8, value_dim = 192>
  %1 = attn.update %0, %q, %kv0 see causal scale 0.125 : tensor<?x8x176xbf16>, !attn.kv<dense, heads = 8, dim = 176, value_dim = 192, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 192>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 192> -> tensor<?x8x192xbf16>
  return %o : tensor<?x8x192xbf16>
}
