// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected 1 to 16 warps, got 32}}
module attributes {a = #tile.schedule<mma, rows = 512, keys = 64, warps = 32, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 1 to 8 stages, got 0}}
module attributes {a = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 0, blocks = 1, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 1 to 8 blocks per multiprocessor, got 9}}
module attributes {a = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 9, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 16 rows per warp, or 8 with split_keys and query_in_registers, got 32 (rows = 128, warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 128, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 16 rows per warp, or 8 with split_keys and query_in_registers, got 32 (rows = 32, warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 32, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected the number of warps to divide the 16 rows, got 3}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 48, warps = 3, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected the keys of a warp to be a multiple of 16, got 8 (keys = 32, warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>} {}

// -----

// Three warps cannot share 64 keys.
// expected-error @+1 {{expected the keys of a warp to be a multiple of 16, got 64 (keys = 64, warps = 3)}}
module attributes {a = #tile.schedule<mma, rows = 48, keys = 64, warps = 3, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 2 to 32 keys for each warp to copy, got 64 (keys = 64, warps = 1)}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 1, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 2 to 32 keys for each warp to copy, got 1 (keys = 16, warps = 16)}}
module attributes {a = #tile.schedule<mma, rows = 256, keys = 16, warps = 16, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>} {}

// -----

// expected-error @+1 {{expected 'tile.schedules' to be a list of #tile.schedule, at least one, got []}}
module attributes {tile.schedules = []} {}

// -----

// expected-error @+1 {{expected 'tile.schedules' to be a list of #tile.schedule, at least one, got [1]}}
module attributes {tile.schedules = [1]} {}

// -----

#decode = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>
// expected-error @+1 {{expected one schedule per number of rows, got two for 16}}
module attributes {tile.schedules = [#decode, #decode]} {}

// -----

// expected-error @+1 {{expected 'tile.schedule' to be a #tile.schedule, got "mma"}}
module attributes {tile.schedule = "mma"} {}

// -----

// expected-error @+1 {{expected 'tile.parameters' to be a list of #tile.parameter, got ["q"]}}
module attributes {tile.parameters = ["q"]} {}

// -----

// expected-error @+1 {{expected 'tile.threads' to be a positive integer, got 0}}
module attributes {tile.threads = 0 : i32} {}

// -----

// expected-error @+1 {{expected 'tile.stages' to be a positive integer, got "two"}}
module attributes {tile.stages = "two"} {}

// -----

// expected-error @+1 {{expected 'tile.blocks_per_sm' to be a positive integer, got 4294967296}}
module attributes {tile.blocks_per_sm = 4294967296 : i64} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to be a dictionary, got "merge"}}
module attributes {tile.launch = "merge"} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have a 'role' that the runtime knows}}
module attributes {tile.launch = {role = "backward", grid = "plan.starts"}} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have a 'grid': an array of a plan, or rows}}
module attributes {tile.launch = {role = "merge", grid = "plan.merged"}} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have both 'rows_per_warp' and 'pieces', positive integers, or neither}}
module attributes {tile.launch = {role = "merge", grid = "plan.merge_rows", rows_per_warp = 1 : i32}} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have both 'rows_per_warp' and 'pieces', positive integers, or neither}}
module attributes {tile.launch = {role = "merge", grid = "plan.merge_rows", rows_per_warp = 1 : i32, pieces = 0 : i32}} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have 'overlaps' without a value}}
module attributes {tile.launch = {role = "merge", grid = "plan.merge_rows", overlaps = true}} {}

// -----

// expected-error @+1 {{expected 'tile.launch' to have no 'overlap'}}
module attributes {tile.launch = {role = "merge", grid = "plan.merge_rows", overlap}} {}

// -----

// expected-error @+1 {{expected 'tile.shared_bytes' to be an integer that is not negative, got -1}}
module attributes {tile.shared_bytes = -1 : i64} {}

// -----

// expected-error @+1 {{expected warps a multiple of 4 and split_keys false}}
module attributes {a = #tile.schedule<wgmma, rows = 96, keys = 64, warps = 6, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>} {}

// -----

// expected-error @+1 {{expected at most 256 keys, the limit of one wgmma, got 272}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 272, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>} {}

// -----

// expected-error @+1 {{expected mma or wgmma, got 'simd'}}
module attributes {a = #tile.schedule<simd, rows = 16>} {}

// -----

// expected-error @+1 {{expected a schedule to give 'keys'}}
module attributes {a = #tile.schedule<mma, rows = 16>} {}

// -----

// expected-error @+1 {{'rows' is given twice}}
module attributes {a = #tile.schedule<mma, rows = 16, rows = 32>} {}

// -----

// expected-error @+1 {{a schedule has no field 'lanes'}}
module attributes {a = #tile.schedule<mma, rows = 16, lanes = 32>} {}

// -----

// expected-error @+1 {{expected true or false, got 'yes'}}
module attributes {a = #tile.schedule<mma, rows = 16, ping_pong = yes>} {}

// -----

// expected-error @+1 {{expected gather or boxes, got 'panels'}}
module attributes {a = #tile.schedule<mma, rows = 16, key_copies = [panels]>} {}

// -----

// expected-error @+1 {{expected boxes of a multiple of 8 lines up to 256, got 12}}
module attributes {a = #tile.schedule<mma, rows = 16, query_copy = boxes 12>} {}

// -----

// expected-error @+1 {{expected store or send, got 'keep'}}
module attributes {a = #tile.schedule<mma, rows = 16, epilogue = keep>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, producers = 4>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, ping_pong = true>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, epilogue = send>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, query_stages = 2>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, exchange_stages = 2>} {}

// -----

// expected-error @+1 {{under mma all warps gather, compute and store}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true, key_copies = [boxes 16]>} {}

// -----

// expected-error @+1 {{expected 4 or 8 producers, one or two warpgroups, to which registers are given, got 1}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 1>} {}

// -----

// expected-error @+1 {{expected 1 or 2 query_stages, got 3}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, query_stages = 3>} {}

// -----

// expected-error @+1 {{expected 1 or 2 exchange_stages, got 3}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, exchange_stages = 3>} {}

// -----

// expected-error @+1 {{expected key_copies and value_copies to be the same}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, key_copies = [gather], value_copies = [boxes 64]>} {}

// -----

// expected-error @+1 {{expected registers of a role to be a multiple of 8 from 24 to 256, got 100}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producer_registers = 100>} {}

// -----

// expected-error @+1 {{expected shared_bytes that are not negative, got -1}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, shared_bytes = -1>} {}

// -----

// expected-error @+1 {{expected 1 to 32 warps, got 0}}
module attributes {a = #tile.merge_schedule<warps = 0, blocks = 5, parts = 16>} {}

// -----

// expected-error @+1 {{expected 1 to 32 blocks per multiprocessor, got 33}}
module attributes {a = #tile.merge_schedule<warps = 4, blocks = 33, parts = 16>} {}

// -----

// expected-error @+1 {{expected a power of two up to 32 as the parts that are read at once, got 12}}
module attributes {a = #tile.merge_schedule<warps = 4, blocks = 5, parts = 12>} {}

// -----

// expected-error @+1 {{expected slices that divide the 4 warps, got 3}}
module attributes {a = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16, slices = 3>} {}

// -----

// expected-error @+1 {{expected 'tile.merge_schedule' to be a #tile.merge_schedule, got 4}}
module attributes {tile.merge_schedule = 4} {}

// -----

// expected-error @+1 {{expected 'tile.l2' to be "evict_first", "evict_last" or "discard", got "evict"}}
module attributes {tile.l2 = "evict"} {}

// -----

// expected-error @+1 {{expected 1 to 4 value_slices that divide the warps, and 1 with split_keys, got 3 (warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 32, keys = 32, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 3>} {}

// -----

// expected-error @+1 {{expected 1 to 4 value_slices that divide the warps, and 1 with split_keys, got 2 (warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = false, value_slices = 2>} {}

// -----

// expected-error @+1 {{expected 1 to 4 value_slices that divide the warpgroups, and 1 with split_keys, got 2 (warps = 12)}}
module attributes {a = #tile.schedule<wgmma, rows = 192, keys = 64, warps = 12, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2>} {}

// -----

// expected-error @+1 {{expected 16 rows per warp, or 8 with split_keys and query_in_registers, got 32 (rows = 64, warps = 4)}}
module attributes {a = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2>} {}

// -----

// expected-error @+1 {{expected 1 stage beside shared_weights under wgmma, whose halves of a tile take turns, got 2}}
module attributes {a = #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, shared_weights = true>} {}

// -----

// expected-error @+1 {{expected shared_weights with 2 value_slices, as many warps (under wgmma, warpgroups) and an even number of keys, got 1 value_slices, 2 warps or warpgroups and 128 keys}}
module attributes {a = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, shared_weights = true>} {}

// -----

// expected-error @+1 {{expected ping_pong = false beside shared_weights: warpgroups wait for each other's weights}}
module attributes {a = #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, ping_pong = true, value_slices = 2, shared_weights = true>} {}
