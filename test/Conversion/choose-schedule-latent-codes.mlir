// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --attn-choose-schedule=target=sm_80 | FileCheck %s --check-prefix=MMA

// Over latents in e4m3 with a scale of the tensor two warps share weights where rows are few, and two warpgroups where they
// are many; producers hold lines while they widen them. Chips before Hopper have tiles of many rows on mma.

// HOPPER-LABEL: @codes
// HOPPER-SAME: tile.schedules = [#tile.schedule<mma, rows = 16, keys = 32, {{[^>]*}} shared_weights = true, {{[^>]*}}>, #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, {{[^>]*}} producers = 8, producer_registers = 56, consumer_registers = 200, query_stages = 1, query_copy = gather, key_copies = [gather], {{[^>]*}} shared_weights = true, shared_bytes = 230480>]
// MMA-LABEL: @codes
// MMA-SAME: #tile.schedule<mma, rows = 16, {{[^>]*}} value_slices = 2, {{[^>]*}}>, #tile.schedule<mma, rows = {{32|64}},
func.func @codes(%q: tensor<?x128x576xbf16> {attn.name = "q"},
                 %kv: !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>> {attn.name = "kv"}) -> tensor<?x128x512xbf16> {
  %0 = attn.init %q : tensor<?x128x576xbf16> -> !attn.state<heads = 128, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x128x576xbf16>, !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>> -> !attn.state<heads = 128, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 128, value_dim = 512> -> tensor<?x128x512xbf16>
  return %o : tensor<?x128x512xbf16>
}
