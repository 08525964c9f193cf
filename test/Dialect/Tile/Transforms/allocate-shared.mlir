// RUN: attn-opt %s --tile-allocate-shared | FileCheck %s

gpu.module @kernels {
  // The bytes for which the schedule was chosen. Offsets are multiples of 1024; a per-warp ring has one
  // allocation per warp.
  // CHECK: func.func @kernel() attributes {
  // CHECK-SAME: tile.shared_bytes = 26624 : i64
  func.func @kernel() attributes {
    tile.schedule = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true,
                                   query_in_registers = true, shared_bytes = 26624>} {
    // CHECK-NEXT: tile.alloc {offset = 0 : i64} : !tile.shared<query 16, feature 80
    %q = tile.alloc : !tile.shared<query 16, feature 80, bf16, swizzled>  // 2560 bytes
    // CHECK-NEXT: %[[K:.*]] = tile.alloc {offset = 3072 : i64, per_warp} : !tile.ring
    %k = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 32, bf16, swizzled>>  // 4 x 2048
    // CHECK-NEXT: tile.alloc {offset = 11264 : i64} : !tile.shared<key 64, feature 32
    %v = tile.alloc : !tile.shared<key 64, feature 32, bf16, swizzled>  // 4096
    // An overlay starts at its base's offset, and may reach past it.
    // CHECK-NEXT: tile.alloc overlays %[[K]] : {{.*}} {offset = 3072 : i64} : !tile.scratch<23552>
    %s = tile.alloc overlays %k : !tile.ring<2, <key 16, feature 32, bf16, swizzled>> : !tile.scratch<23552>
    return
  }

  // CHECK: func.func @merge() attributes {tile.shared_bytes = 0 : i64}
  func.func @merge() {
    return
  }
}
