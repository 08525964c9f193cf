// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a 2>&1 | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --attn-choose-schedule=target=sm_80 | FileCheck %s --check-prefixes=MMA,LARGE
// RUN: attn-opt %s --attn-choose-schedule=target=sm_89 | FileCheck %s --check-prefixes=MMA,SMALL

// Warps, or warpgroups, share rows where the values have more than 256 features. Warpgroups share weights, too, and have
// a tile for each of two halves. Values that are a part of their keys take no shared memory of their own.

// HOPPER: remark: schedule wgmma for prefill: a tile of 64 rows
// HOPPER: {{^}}module {
// HOPPER: @latent
// HOPPER-SAME: #tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = 2, blocks = 2, split_keys = false, query_in_registers = false, value_slices = 2, shared_bytes = 92160>
// HOPPER-SAME: #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, {{[^>]*}} query_stages = 1, {{[^>]*}} ping_pong = false, epilogue = store, value_slices = 2, shared_weights = true, shared_bytes = 230{{[0-9]+}}>
// MMA-LABEL: @latent
// LARGE-SAME: #tile.schedule<mma, rows = 16, keys = 16, warps = 2, stages = 3, blocks = 2, {{[^>]*}} value_slices = 2,
// LARGE-SAME: #tile.schedule<mma, rows = 64, keys = 32, warps = 8, stages = 2, blocks = 1, {{[^>]*}} value_slices = 2,
// SMALL-SAME: #tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = 2, blocks = 1, {{[^>]*}} value_slices = 2,
// SMALL-SAME: #tile.schedule<mma, rows = 32, keys = 16, warps = 4, stages = 2, blocks = 1, {{[^>]*}} value_slices = 2,
func.func @latent(%q: tensor<?x128x576xbf16> {attn.name = "q"},
                  %kv: !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>> {attn.name = "kv"}) -> tensor<?x128x512xbf16> {
  %0 = attn.init %q : tensor<?x128x576xbf16> -> !attn.state<heads = 128, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x128x576xbf16>, !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>> -> !attn.state<heads = 128, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 128, value_dim = 512> -> tensor<?x128x512xbf16>
  return %o : tensor<?x128x512xbf16>
}

// Small latents have the schedules of other heads.
// HOPPER: @small
// HOPPER-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, {{[^>]*}} split_keys = true,
// HOPPER-SAME: #tile.schedule<wgmma,
// HOPPER-NOT: value_slices
// HOPPER: @wide
// HOPPER-SAME: #tile.schedule<mma, rows = 16, {{[^>]*}} value_slices = 2,
// HOPPER-SAME: #tile.schedule<wgmma, rows = 64, keys = 64, warps = 8, stages = 1, {{[^>]*}} query_stages = 1, {{[^>]*}} key_copies = [boxes 32], value_copies = [boxes 32], value_boxes = 0, ping_pong = false, epilogue = store, value_slices = 2, shared_weights = true, shared_bytes = 201824>
// HOPPER: @short_wide
// HOPPER-SAME: #tile.schedule<wgmma, rows = 64, keys = 128, {{[^>]*}} shared_weights = true,
// MMA-LABEL: @small
// MMA-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, {{[^>]*}} split_keys = true,
func.func @small(%q: tensor<?x8x80xbf16> {attn.name = "q"},
                 %kv: !attn.kv<packed, heads = 1, dim = 80, key = bf16, value = first<64>> {attn.name = "kv"}) -> tensor<?x8x64xbf16> {
  %0 = attn.init %q : tensor<?x8x80xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x80xbf16>, !attn.kv<packed, heads = 1, dim = 80, key = bf16, value = first<64>> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// Long heads with values of their own have slices, too, and share weights on Hopper: in halves of 32 tokens, or of 64
// where these fit.
// MMA-LABEL: @wide
// MMA-SAME: #tile.schedule<mma, rows = 16, {{[^>]*}} value_slices = 2,
// MMA-SAME: value_slices = 2,
func.func @wide(%q: tensor<?x8x512xf16> {attn.name = "q"},
                %kv: !attn.kv<packed, heads = 2, dim = 512, key = f16, value = f16> {attn.name = "kv"}) -> tensor<?x8x512xf16> {
  %0 = attn.init %q : tensor<?x8x512xf16> -> !attn.state<heads = 8, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x512xf16>, !attn.kv<packed, heads = 2, dim = 512, key = f16, value = f16> -> !attn.state<heads = 8, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 512> -> tensor<?x8x512xf16>
  return %o : tensor<?x8x512xf16>
}

func.func @short_wide(%q: tensor<?x8x64xf16> {attn.name = "q"},
                      %kv: !attn.kv<packed, heads = 2, dim = 64, value_dim = 384, key = f16, value = f16> {attn.name = "kv"}) -> tensor<?x8x384xf16> {
  %0 = attn.init %q : tensor<?x8x64xf16> -> !attn.state<heads = 8, value_dim = 384>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x64xf16>, !attn.kv<packed, heads = 2, dim = 64, value_dim = 384, key = f16, value = f16> -> !attn.state<heads = 8, value_dim = 384>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 384> -> tensor<?x8x384xf16>
  return %o : tensor<?x8x384xf16>
}
