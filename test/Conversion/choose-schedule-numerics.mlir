// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a --split-input-file 2>&1 | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --attn-choose-schedule=target=sm_80 --split-input-file | FileCheck %s --check-prefix=MMA

// Kernels that share a numerics contract have the same tiles of keys: one warpgroup for few rows, two for many. One
// kernel does all if there is no wgmma, or if values are quantized.

!query = tensor<?x32x128xbf16>
!pages = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!state = !attn.state<heads = 32, value_dim = 128>

// HOPPER: remark: schedule mma instead of wgmma: wgmma reads keys and values from shared memory as they are
// HOPPER: func.func @paged(
// HOPPER-SAME: tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 4, stages = 3, blocks = 1, {{[^>]*}} key_copies = [gather]
// HOPPER-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, {{[^>]*}}>]
// MMA: func.func @paged(
// MMA-SAME: tile.schedules = [#tile.schedule<mma, rows = 16, {{[^>]*}} split_keys = true, {{[^>]*}}>]
func.func @paged(%q: !query {attn.name = "q"}, %kv: !pages {attn.name = "kv"}) -> !query attributes {attn.numerics = "row"} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !pages -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x32x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i8, per = 128>>
!state = !attn.state<heads = 32, value_dim = 128>

// HOPPER: func.func @quantized(
// HOPPER-SAME: tile.schedules = [#tile.schedule<mma, rows = 8, {{[^>]*}}>]
// MMA: func.func @quantized(
// MMA-SAME: tile.schedules = [#tile.schedule<mma, rows = 8, {{[^>]*}}>]
func.func @quantized(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query attributes {attn.numerics = "row"} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

// Two blocks of a multiprocessor fit if queries have one stage.

!query = tensor<?x12x64xbf16>
!pages = !attn.kv<paged<16>, heads = 12, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 12, value_dim = 64>

// HOPPER: func.func @short(
// HOPPER-SAME: tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 4, stages = 3, blocks = 2, {{[^>]*}} query_stages = 1, {{[^>]*}}>
// HOPPER-SAME: #tile.schedule<wgmma, rows = 192, keys = 128, warps = 12, {{[^>]*}}>]
func.func @short(%q: !query {attn.name = "q"}, %kv: !pages {attn.name = "kv"}) -> !query attributes {attn.numerics = "row"} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !pages -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
