// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule=target=sm_90a

// Schedules that a user gave and that cannot be written or launched.

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, key_copies = [gather, gather]>
// expected-error @+1 {{has copies of 2 regions, and there are 1}}
func.func @regions(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, key_copies = [boxes 64]>
// expected-error @+1 {{copies by boxes 64, and tiles of 64 tokens of '!attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>' come by boxes 16}}
func.func @torn(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_copies = [boxes 8]>
// expected-error @+1 {{copies by boxes 8, and tiles of 64 tokens of '!attn.kv<paged<4>, heads = 8, dim = 128, key = bf16, value = bf16>' come by gather}}
func.func @apart(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<paged<4>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<4>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_boxes = 32>
// expected-error @+1 {{has value_boxes = 32, expected 0 or 16}}
func.func @value_boxes(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_copy = boxes 128, key_copies = [gather]>
// expected-error @+1 {{loads queries by TMA and gathers tokens: expected query_copy = gather}}
func.func @query_boxes(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_copy = boxes 64, epilogue = store>
// expected-error @+1 {{has query_copy = boxes 64, expected boxes 128, the rows of a tile}}
func.func @query_lines(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_copy = boxes 128>
// expected-error @+1 {{has boxes of 128 queries, which the 7 heads of a group do not fill evenly}}
func.func @group(%q: tensor<?x28x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 4, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x28x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x28x128xbf16> -> !attn.state<heads = 28, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x28x128xbf16>, !attn.kv<dense, heads = 4, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 28, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 28, value_dim = 128> -> tensor<?x28x128xbf16>
  return %o : tensor<?x28x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_copy = gather, epilogue = send>
// expected-error @+1 {{stores results by TMA: expected query_copy = boxes 64}}
func.func @send_gathered(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_stages = 1, epilogue = send>
// expected-error @+1 {{stores results by TMA from the queries' stage: expected 2 query_stages}}
func.func @send_slots(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, epilogue = send>
// expected-error @+1 {{stores results by TMA from tiles of queries, 'bf16', and outputs are f8E4M3FN: expected epilogue = store}}
func.func @send_e4m3(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}, %s: tensor<1xf32> {attn.name = "output_scale"}) -> tensor<?x8x128xf8E4M3FN>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 output_scale %s : !attn.state<heads = 8, value_dim = 128> output_scale tensor<1xf32> -> tensor<?x8x128xf8E4M3FN>
  return %o : tensor<?x8x128xf8E4M3FN>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, epilogue = send>
// expected-error @+1 {{stores rows of 192 features by TMA from the queries' stages, which have 128}}
func.func @send_wide(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, value_dim = 192, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x192xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 192>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, value_dim = 192, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 192>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 192> -> tensor<?x8x192xbf16>
  return %o : tensor<?x8x192xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, exchange_stages = 2>
// expected-error @+1 {{has exchange_stages, and only gradients are exchanged}}
func.func @exchange(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, ping_pong = true>
// expected-error @+1 {{has ping-pong: expected two or more warpgroups that compute, got one}}
func.func @turns(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 192, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, consumer_registers = 200>
// expected-error @+1 {{needs 208 registers of a thread for fragments alone, and it has 200}}
func.func @registers(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, shared_bytes = 1000>
// expected-error @+1 {{needs 132168 bytes of shared memory, and says 1000}}
func.func @said(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 96, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_stages = 2>
// expected-error @+1 {{needs 328776 bytes of shared memory, sm_90a has 232448 per block}}
func.func @slots(%q: tensor<?x8x256xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x256xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// -----

#given = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 4, blocks = 2, split_keys = true, query_in_registers = true>
// expected-error @+1 {{needs 135168 bytes of shared memory and 1024 of the system's in each of 2 blocks, sm_90a has 233472 per multiprocessor}}
func.func @blocks(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<mma, rows = 128, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = true>
// expected-error @+1 {{needs 288 registers of a thread for fragments alone, and it has 255}}
func.func @fragments(%q: tensor<?x8x256xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x256xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producer_registers = 48, consumer_registers = 232>
// expected-error @+1 {{gives 65536 registers to its roles, and a block begins with 64512}}
func.func @roles(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>
// expected-error @+1 {{gives 64512 registers to its roles, and a block begins with 30720}}
func.func @roles_of_blocks(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

#given = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, consumer_registers = 160>
// expected-error @+1 {{has threads that begin with 168 registers: expected consumer_registers to be no fewer, got 160}}
func.func @decrease(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x128xbf16>
    attributes {tile.schedules = [#given]} {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i8, per = 128>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{has query_in_registers = false: expected true, where queries of bf16 become f16 as quantized values do}}
func.func @widened_queries(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i8, per = 128>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{has query_in_registers = true: expected false, where wgmma reads queries from shared memory}}
func.func @widened_halves(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{has query_in_registers = true: expected false, where wgmma reads queries from shared memory}}
func.func @floats_in_registers(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i8, per = 64>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{multiplies keys and values of f16 or bf16, and producers do not widen '!attn.quantized<i8, per = 64>' here; nearest legal: a schedule of kind mma}}
func.func @widened_groups(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i8, per = 128>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{widens '!attn.quantized<i8, per = 128>' for 1 warpgroups: expected warps = 8}}
func.func @widened_warps(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{copies by boxes 16, and tiles of 64 tokens of '!attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>>' come by gather}}
func.func @widened_boxes(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true, key_copies = [boxes 16]>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x128xbf16>
!codes = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i8, per = 128>>
!state = !attn.state<heads = 8, value_dim = 128>
// expected-error @+1 {{widens '!attn.quantized<i8, per = 128>', which kernels of a numerics contract do not; nearest legal: a schedule of kind mma}}
func.func @widened_by_row(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query
    attributes {attn.numerics = "row", tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

// Weights are shared where an accumulator of all values does not fit the registers of a warp.
// expected-error @+1 {{has shared_weights: expected values of a multiple of 128 features from 257 to 512 and keys of a multiple of 64, in 16 bits and one form, loaded by TMA, or latents in one region of e4m3 with a scale that all tokens share, gathered, without score regions, several masks, masks of several sizes, gates of features and numerics}}
func.func @shared(%q: tensor<?x8x256xbf16> {attn.name = "q"}, %kv: !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> {attn.name = "kv"}) -> tensor<?x8x256xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 64, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = bf16, value = bf16> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// -----

// Weights that warps share take no scales of tokens.
!lines = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = token>, value = first<512>>
// expected-error @+1 {{has shared_weights: expected one region of latents whose values have 257 to 512 features, in e4m3 with a scale that all tokens share, without score regions, stores of head classes and numerics}}
func.func @shared_of_tokens(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !lines {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = 2, blocks = 2, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !lines -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

// Producers widen latents whose warpgroups share weights, and no others.
!codes = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
// expected-error @+1 {{multiplies keys and values of f16 or bf16, and producers do not widen}}
func.func @latents_on_wgmma(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 64, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !codes -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

!codes = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
// expected-error @+1 {{has query_in_registers = true: expected false, where wgmma reads queries from shared memory}}
func.func @widened_beside_narrowed(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = true, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !codes -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

// Under a numerics contract no producer widens latents.
!codes = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
// expected-error @+1 {{which kernels of a numerics contract do not; nearest legal: a schedule of kind mma}}
func.func @widened_latents_by_row(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {attn.numerics = "row", tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !codes -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

// Nor where each token has a scale.
!lines = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = token>, value = first<512>>
// expected-error @+1 {{has shared_weights: expected values of a multiple of 128 features from 257 to 512 and keys of a multiple of 64, in 16 bits and one form, loaded by TMA, or latents in one region of e4m3 with a scale that all tokens share, gathered, without score regions, several masks, masks of several sizes, gates of features and numerics}}
func.func @widened_lines_of_tokens(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !lines {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !lines -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

!codes = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
// expected-error @+1 {{expected 8 producers, and keys a multiple of 128, as producers hold eight lines of a half each}}
func.func @widened_short_halves(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 64, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !codes -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}

// -----

!codes = !attn.kv<dense, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
// expected-error @+1 {{expected 8 producers, and keys a multiple of 128, as producers hold eight lines of a half each}}
func.func @widened_by_one_warpgroup(%q: tensor<?x16x576xbf16> {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> tensor<?x16x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, value_slices = 2, shared_weights = true>]} {
  %0 = attn.init %q : tensor<?x16x576xbf16> -> !attn.state<heads = 16, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x16x576xbf16>, !codes -> !attn.state<heads = 16, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 16, value_dim = 512> -> tensor<?x16x512xbf16>
  return %o : tensor<?x16x512xbf16>
}
