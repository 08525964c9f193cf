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
    // expected-error @+1 {{is per warp, but the kernel has no tile.schedule that says how many there are}}
    %0 = tile.alloc {per_warp} : !tile.scratch<64>
    return
  }
}
