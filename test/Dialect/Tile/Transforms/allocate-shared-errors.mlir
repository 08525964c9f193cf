// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-allocate-shared

gpu.module @kernels {
  func.func @foreign(%s: !tile.scratch<64>) {
    // expected-error @+1 {{overlays memory that is not allocated before it}}
    %0 = tile.alloc overlays %s : !tile.scratch<64> : !tile.scratch<64>
    return
  }
}

// -----

gpu.module @kernels {
  func.func @warps() {
    // expected-error @+1 {{is per warp, but the kernel has no tile.schedule with the number of warps}}
    %0 = tile.alloc {per_warp} : !tile.scratch<64>
    return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{internal error: takes 12288 bytes of shared memory, and its schedule was chosen for 8192}}
  func.func @drifted() attributes {
    tile.schedule = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true,
                                   query_in_registers = true, shared_bytes = 8192>} {
    %0 = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 32, bf16, swizzled>>
    %1 = tile.alloc : !tile.shared<key 64, feature 32, bf16, swizzled>
    return
  }
}
