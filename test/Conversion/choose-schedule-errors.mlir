// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule=target=sm_89
// RUN: not attn-opt %s -split-input-file --attn-choose-schedule=target=sm_75 2>&1 | FileCheck %s

// CHECK: error: unknown target 'sm_75'; known are sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a

// 4 KiB of queries and four stages of 64 keys and values of 256 bytes.
// expected-error @+1 {{needs 135168 bytes of shared memory, sm_89 has 101376 per block}}
func.func @large(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 4, blocks = 1, split_keys = true, query_in_registers = true>]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

// expected-error @+1 {{needs sm_90a, the only chip with wgmma; got sm_89}}
func.func @wgmma(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}
