// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=mma" | FileCheck %s --check-prefixes=CHECK,LARGE
// RUN: attn-opt %s --attn-choose-schedule=target=sm_89 | FileCheck %s --check-prefixes=CHECK,SMALL
// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a 2>&1 | FileCheck %s --check-prefix=HOPPER

// One schedule for up to 16 packed rows, whose warps share the keys of a tile, and one for many rows. Chips with 99
// KiB per block get smaller tiles, or fewer blocks per multiprocessor, from the same rules.

// On Hopper prefill uses wgmma, in tiles that were measured: three warpgroups for short dims, else two.
// HOPPER: remark: schedule wgmma for prefill: a tile of 192 rows does 192 operations per byte of keys and values
// HOPPER: {{^}}module {
// HOPPER: @d64
// HOPPER-SAME: #tile.schedule<mma, rows = 16,
// HOPPER-SAME: #tile.schedule<wgmma, rows = 192, keys = 128, warps = 12, stages = 2,
// HOPPER: @d128
// HOPPER-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2,
// HOPPER: @d192
// HOPPER-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2,
// HOPPER: @d256
// HOPPER-SAME: #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2,

// CHECK-LABEL: @d64
// CHECK-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 2, split_keys = true, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// CHECK-SAME: #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = true, shared_bytes = {{[0-9]+}}>
func.func @d64(%q: tensor<?x8x64xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x64xbf16> {
  %0 = attn.init %q : tensor<?x8x64xbf16> -> !attn.state<heads = 8, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x64xbf16>, !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 64> -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

// CHECK-LABEL: @d128
// LARGE-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 2, split_keys = true, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// LARGE-SAME: #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 1, split_keys = true, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = true, shared_bytes = {{[0-9]+}}>
func.func @d128(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// CHECK-LABEL: @d192
// LARGE-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 2, split_keys = true, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// LARGE-SAME: #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 1, split_keys = true, query_in_registers = true, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 128, keys = 32, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = true, shared_bytes = {{[0-9]+}}>
func.func @d192(%q: tensor<?x8x192xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 192, value_dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x192xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x192xbf16>, !attn.kv<dense, heads = 8, dim = 192, value_dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Queries leave the registers if the accumulator needs them.
// CHECK-LABEL: @d256
// LARGE-SAME: #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = {{[2-4]}}, blocks = 1, split_keys = true, query_in_registers = false, shared_bytes = {{[0-9]+}}>
// LARGE-SAME: #tile.schedule<mma, rows = 128, keys = 32, warps = 8, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = false, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = {{[2-4]}}, blocks = 1, split_keys = true, query_in_registers = false, shared_bytes = {{[0-9]+}}>
// SMALL-SAME: #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = {{[2-4]}}, blocks = 1, split_keys = false, query_in_registers = false, shared_bytes = {{[0-9]+}}>
func.func @d256(%q: tensor<?x8x256xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x256xbf16> {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// The user's choice stays.
// CHECK-LABEL: @given
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 32, keys = 32, warps = 2, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, shared_bytes = {{[0-9]+}}>]
func.func @given(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#tile.schedule<mma, rows = 32, keys = 32, warps = 2, stages = 1, blocks = 1, split_keys = false, query_in_registers = false>]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Only kernels on mma merge states.
// CHECK-LABEL: @merged
// CHECK-SAME: #tile.schedule<mma, rows = 16,
// CHECK-SAME: #tile.schedule<mma, rows =
func.func @merged(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                  %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %2 = attn.merge %1, %1 : !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %2 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Functions without attention are unchanged.
// CHECK-LABEL: @other
// CHECK-NOT: tile.schedules
func.func @other(%q: tensor<?x8x128xbf16>) {
  return
}
