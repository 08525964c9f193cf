// RUN: attn-opt %s | attn-opt | FileCheck %s
// Types and attributes print as they are parsed.

// Fields of a schedule may come in any order.
// CHECK: tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16, slices = 4>,
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "q">, #tile.parameter<dim, "kv.max_pages">,
// CHECK-SAME: #tile.parameter<end index 3>, #tile.parameter<scale>]
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 3, blocks = 2,
// CHECK-SAME: split_keys = true, query_in_registers = false>, #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8,
// CHECK-SAME: stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4,
// CHECK-SAME: producer_registers = 40, consumer_registers = 232, query_stages = 2, query_copy = boxes 64,
// CHECK-SAME: key_copies = [boxes 16, gather], value_copies = [boxes 16, gather], value_boxes = 16, ping_pong = true,
// CHECK-SAME: epilogue = send, exchange_stages = 2, shared_bytes = 197704>]
module attributes {
  tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16, slices = 4>,
  tile.parameters = [#tile.parameter<buffer, "q">, #tile.parameter<dim, "kv.max_pages">,
                     #tile.parameter<end index 3>, #tile.parameter<scale>],
  tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 3, blocks = 2, split_keys = true,
                                   query_in_registers = false>,
                    #tile.schedule<wgmma, epilogue = send, exchange_stages = 2, ping_pong = true, producers = 4, producer_registers = 40,
                                   consumer_registers = 232, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1,
                                   split_keys = false, query_in_registers = false, shared_bytes = 197704,
                                   query_stages = 2, query_copy = boxes 64, key_copies = [boxes 16, gather],
                                   value_copies = [boxes 16, gather], value_boxes = 16>]
} {
  // CHECK: @memory(!tile.buffer<bf16>, !tile.shared<query 16, feature 128, bf16>,
  // CHECK-SAME: !tile.shared<key 64, feature 80, f16, swizzled>, !tile.ring<3, <key 16, feature 64, bf16, swizzled>>,
  // CHECK-SAME: !tile.scratch<4096>)
  func.func private @memory(!tile.buffer<bf16>, !tile.shared<query 16, feature 128, bf16>,
                            !tile.shared<key 64, feature 80, f16, swizzled>,
                            !tile.ring<3, <key 16, feature 64, bf16, swizzled>>, !tile.scratch<4096>)
  // CHECK: @fragments(!tile.fragment<[query 16, key 8], f32>, !tile.fragment<[query 16, key 8], f32, acc>,
  // CHECK-SAME: !tile.fragment<[query 16, feature 32], bf16, lhs>, !tile.fragment<[query 32], i32, row>,
  // CHECK-SAME: !tile.fragment<[key 8], i32, col>, !tile.fragment<[query 16], f32, row, partial>,
  // CHECK-SAME: !tile.fragment<[query 16, key 32], f8E4M3FN, lhs>, !tile.fragment<[query 16, key 8], f32, lhs>,
  // CHECK-SAME: !tile.fragment<[key 8, feature 16], f8E4M3FN, rhs>)
  func.func private @fragments(!tile.fragment<[query 16, key 8], f32>, !tile.fragment<[query 16, key 8], f32, acc>,
                               !tile.fragment<[query 16, feature 32], bf16, lhs>, !tile.fragment<[query 32], i32, row>,
                               !tile.fragment<[key 8], i32, col>, !tile.fragment<[query 16], f32, row, partial>,
                               !tile.fragment<[query 16, key 32], f8E4M3FN, lhs>, !tile.fragment<[query 16, key 8], f32, lhs>,
                               !tile.fragment<[key 8, feature 16], f8E4M3FN, rhs>)
}
