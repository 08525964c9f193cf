// RUN: attn-opt %s | attn-opt | FileCheck %s
// Types and attributes print as they are read.

// CHECK: tile.parameters = [#tile.parameter<buffer, "q">, #tile.parameter<dim, "kv.max_pages">,
// CHECK-SAME: #tile.parameter<end index 3>, #tile.parameter<scale>]
// CHECK-SAME: tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 3, blocks = 2,
// CHECK-SAME: split_keys = true, query_in_registers = false>]
module attributes {
  tile.parameters = [#tile.parameter<buffer, "q">, #tile.parameter<dim, "kv.max_pages">,
                     #tile.parameter<end index 3>, #tile.parameter<scale>],
  tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 3, blocks = 2, split_keys = true,
                                   query_in_registers = false>]
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
  // CHECK-SAME: !tile.fragment<[query 16, key 32], f8E4M3FN, lhs>, !tile.fragment<[query 16, key 8], f32, lhs>)
  func.func private @fragments(!tile.fragment<[query 16, key 8], f32>, !tile.fragment<[query 16, key 8], f32, acc>,
                               !tile.fragment<[query 16, feature 32], bf16, lhs>, !tile.fragment<[query 32], i32, row>,
                               !tile.fragment<[key 8], i32, col>, !tile.fragment<[query 16], f32, row, partial>,
                               !tile.fragment<[query 16, key 32], f8E4M3FN, lhs>, !tile.fragment<[query 16, key 8], f32, lhs>)
}
