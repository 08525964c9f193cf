// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-to-machine

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel with a body}}
  func.func private @external(i32)
}

// -----

gpu.module @kernels {
  func.func @layout(%x: f32) {
    // expected-error @+1 {{expected fragments to have a layout, got '!tile.fragment<[query 16], f32>'; --tile-infer-layouts gives them one}}
    %0 = tile.splat %x : f32 -> !tile.fragment<[query 16], f32>
    return
  }
}

// -----

gpu.module @kernels {
  func.func @offset() {
    // expected-error @+1 {{expected an offset; --tile-allocate-shared sets it}}
    %0 = tile.alloc : !tile.scratch<64>
    return
  }
}

// -----

gpu.module @kernels {
  gpu.func @place() kernel {
    // expected-error @+1 {{expected to be in a func.func of the gpu.module}}
    %0 = tile.warp_id : i32
    gpu.return
  }
}

// -----

!keys = !tile.shared<key 64, feature 64, bf16, swizzled>
gpu.module @kernels {
  func.func @warps(%k: !keys, %n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    // expected-error @+1 {{is shared by warps, but the kernel has no tile.schedule that says how many}}
    tile.gather block %n to %n from %b origins %z strides [64] into %k (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !keys
    return
  }
}

// -----

!keys = !tile.shared<key 20, feature 64, bf16, swizzled>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>
gpu.module @kernels {
  func.func @share(%k: !keys, %n: i32, %b: !tile.buffer<bf16>, %z: i64) attributes {tile.schedule = #rows128} {
    // expected-error @+1 {{expected lines that 8 warps can share, got 20}}
    tile.gather block %n to %n from %b origins %z strides [64] into %k (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !keys
    return
  }
}

// -----

!keys = !tile.shared<key 64, feature 64, bf16, swizzled>
gpu.module @kernels {
  func.func @lookup(%k: !keys, %n: i32, %b: !tile.buffer<bf16>, %t: !tile.buffer<i32>, %z: i64) {
    // expected-error @+1 {{expected at most 32 lines per warp, one for each lane, got 64}}
    %slots = tile.lookup warp %n to %n lines 64 (%line: i32) {
      %slot = tile.read %t[%z] : <i32> -> i32
      tile.yield %slot : i32
    }
    return
  }
}

// -----

!keys = !tile.shared<key 16, feature 64, bf16>
gpu.module @kernels {
  func.func @swizzle(%k: !keys, %n: i32, %b: !tile.buffer<bf16>, %z: i64) {
    // expected-error @+1 {{expected swizzled tiles, got '!tile.shared<key 16, feature 64, bf16>'; --tile-infer-layouts swizzles them}}
    tile.gather warp %n to %n from %b origins %z strides [64] into %k (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !keys
    return
  }
}

// -----

gpu.module @kernels {
  func.func @floats_of_8_bits(%x: !tile.fragment<[query 16, key 16], f8E4M3FN, acc>) {
    // expected-error @+1 {{cannot compute with quantized values, got '!tile.fragment<[query 16, key 16], f8E4M3FN, acc>'}}
    %0 = tile.map %x (%y: f8E4M3FN) {
      %z = arith.extf %y : f8E4M3FN to f32
      tile.yield %z : f32
    } : !tile.fragment<[query 16, key 16], f8E4M3FN, acc> -> !tile.fragment<[query 16, key 16], f32, acc>
    return
  }
}
