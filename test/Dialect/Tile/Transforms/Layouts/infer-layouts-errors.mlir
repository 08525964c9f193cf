// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-infer-layouts

gpu.module @kernels {
  func.func @rows(%s: !tile.fragment<[query 16, key 24], f32>) {
    // expected-error @+1 {{expected a multiple of 16 along key, got 24}}
    %1 = tile.convert %s : !tile.fragment<[query 16, key 24], f32> -> !tile.fragment<[key 24, query 16], f32>
    return
  }
}

// -----

gpu.module @kernels {
  func.func @columns(%x: f32) {
    // expected-error @+1 {{expected a multiple of 8 along key, got 4}}
    %0 = tile.splat %x : f32 -> !tile.fragment<[query 16, key 4], f32>
    return
  }
}

// -----

!acc = !tile.fragment<[query 16, key 16], f32>
!transposed = !tile.fragment<[key 16, query 16], f32>

// The start of a lane's coordinates differs between layouts.
gpu.module @kernels {
  func.func @relative(%s: !acc, %st: !transposed) {
    %first, %offsets = tile.lane_coordinates : !tile.fragment<[key 16], i32>
    // expected-error @+1 {{expected one layout for '!tile.fragment<[key 16], i32, col>', for it is relative to the lane's own coordinates}}
    %moved = tile.map %offsets (%o: i32) {
      %n = arith.addi %o, %first : i32
      tile.yield %n : i32
    } : !tile.fragment<[key 16], i32> -> !tile.fragment<[key 16], i32>
    %0 = tile.map %s, %moved (%x: f32, %n: i32) {
      tile.yield %x : f32
    } : !acc, !tile.fragment<[key 16], i32> -> !acc
    // expected-note @+1 {{needed in layout 'row' here}}
    %1 = tile.map %st, %moved (%x: f32, %n: i32) {
      tile.yield %x : f32
    } : !transposed, !tile.fragment<[key 16], i32> -> !transposed
    return
  }
}

// -----

!acc = !tile.fragment<[query 16, key 16], f32>
!transposed = !tile.fragment<[key 16, query 16], f32>
!shares = !tile.fragment<[query 16], f32, partial>

gpu.module @kernels {
  func.func @partial(%c: i1, %s: !acc, %st: !transposed) {
    %0 = tile.reduce add %s : !acc -> !shares
    // expected-error @+1 {{expected one layout for '!tile.fragment<[query 16], f32, col, partial>', for a partial sum lies in the lanes that took it}}
    %1 = tile.reduce add %st : !transposed -> !shares
    %2 = scf.if %c -> !shares {
      scf.yield %0 : !shares
    } else {
      // expected-note @+1 {{needed in layout 'row' here}}
      scf.yield %1 : !shares
    }
    return
  }
}

// -----

gpu.module @kernels {
  func.func @wide(%s: !tile.fragment<[query 16, key 16], f32>, %st: !tile.fragment<[key 16, query 16], f32>, %b: !tile.buffer<i64>) {
    // expected-error @+1 {{expected one layout for '!tile.fragment<[query 16], i64, row>', for elements of 8, 16 or 32 bits move between lanes and no others}}
    %v = tile.load_vector %b (%line: i32) {
      %index = arith.extsi %line : i32 to i64
      tile.yield %index : i64
    } : <i64> -> !tile.fragment<[query 16], i64>
    %0 = tile.map %s, %v (%x: f32, %n: i64) {
      tile.yield %x : f32
    } : !tile.fragment<[query 16, key 16], f32>, !tile.fragment<[query 16], i64> -> !tile.fragment<[query 16, key 16], f32>
    // expected-note @+1 {{needed in layout 'col' here}}
    %1 = tile.map %st, %v (%x: f32, %n: i64) {
      tile.yield %x : f32
    } : !tile.fragment<[key 16, query 16], f32>, !tile.fragment<[query 16], i64> -> !tile.fragment<[key 16, query 16], f32>
    return
  }
}

// -----

// A right operand is for MMAs; its elements have no other use.
gpu.module @kernels {
  func.func @right(%x: f32, %i: i32, %t: !tile.shared<query 16, feature 64, bf16>, %k: !tile.shared<key 16, feature 64, f8E4M3FN>) {
    %q = tile.load %t at %i : !tile.shared<query 16, feature 64, bf16> -> !tile.fragment<[query 16, feature 64], bf16>
    %codes = tile.load_rhs %k : !tile.shared<key 16, feature 64, f8E4M3FN> -> !tile.fragment<[key 16, feature 64], f8E4M3FN>
    // expected-error @+1 {{expected one layout for '!tile.fragment<[key 16, feature 64], bf16, rhs>', for right operands come from memory}}
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 64], f8E4M3FN> -> !tile.fragment<[key 16, feature 64], bf16>
    %none = tile.splat %x : f32 -> !tile.fragment<[query 16, key 16], f32>
    %s = tile.mma %q, %wide, %none : !tile.fragment<[query 16, feature 64], bf16>, !tile.fragment<[key 16, feature 64], bf16>, <[query 16, key 16], f32> -> <[query 16, key 16], f32>
    // expected-note @+1 {{needed in layout 'acc' here}}
    %0 = tile.map %wide (%e: bf16) {
      tile.yield %e : bf16
    } : !tile.fragment<[key 16, feature 64], bf16> -> !tile.fragment<[key 16, feature 64], bf16>
    return
  }
}

// -----

gpu.module @kernels {
  func.func @left(%x: f32, %q: !tile.fragment<[query 16, feature 64], bf16>, %s: !tile.fragment<[key 16, feature 64], f32>) {
    // expected-error @+1 {{expected one layout for '!tile.fragment<[key 16, feature 64], bf16, lhs>', for right operands come from memory}}
    %k = tile.cast %s : !tile.fragment<[key 16, feature 64], f32> -> !tile.fragment<[key 16, feature 64], bf16>
    %none = tile.splat %x : f32 -> !tile.fragment<[query 16, key 16], f32>
    // expected-note @+1 {{needed in layout 'rhs' here}}
    %0 = tile.mma %q, %k, %none : !tile.fragment<[query 16, feature 64], bf16>, !tile.fragment<[key 16, feature 64], bf16>, <[query 16, key 16], f32> -> <[query 16, key 16], f32>
    return
  }
}
