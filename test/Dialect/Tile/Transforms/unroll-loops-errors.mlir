// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-unroll-loops

gpu.module @kernels {
  func.func @start(%n: i32) {
    %one = arith.constant 1 : i32
    // expected-error @+1 {{expected a loop with tile.unroll to count from 0 in steps of 1}}
    scf.for %i = %one to %n step %one : i32 {
    } {tile.unroll = 4}
    return
  }
}

// -----

gpu.module @kernels {
  func.func @writes(%b: !tile.buffer<f32>, %x: i64, %v: f32, %n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    // expected-error @+1 {{expected nothing but reads and pure operations in a loop with tile.unroll}}
    scf.for %i = %zero to %n step %one : i32 {
      tile.write %v to %b[%x] : f32 -> <f32>
    } {tile.unroll = 4}
    return
  }
}

// -----

gpu.module @kernels {
  func.func @count(%n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    // expected-error @+1 {{expected 'tile.unroll' to be a positive integer, got 0 : i64}}
    scf.for %i = %zero to %n step %one : i32 {
    } {tile.unroll = 0}
    return
  }
}
