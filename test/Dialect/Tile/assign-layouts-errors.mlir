// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-assign-layouts

!queries = !tile.shared<query 16, feature 64, bf16>
!keys = !tile.shared<key 16, feature 64, bf16>

gpu.module @kernels {
  func.func @both(%q: !queries, %k: !keys, %i: i32, %a: !tile.fragment<[query 16, key 16], f32>,
                  %b: !tile.fragment<[key 16, query 16], f32>) {
    // expected-note @+1 {{the other placement}}
    %0 = tile.dot %q at %i, %k, %a : !queries, !keys, !tile.fragment<[query 16, key 16], f32> -> !tile.fragment<[query 16, key 16], f32>
    // expected-error @+1 {{axis 'key' lies along rows here and along columns elsewhere}}
    %1 = tile.dot %k at %i, %q, %b : !keys, !queries, !tile.fragment<[key 16, query 16], f32> -> !tile.fragment<[key 16, query 16], f32>
    return
  }
}

// -----

gpu.module @kernels {
  func.func @rows(%i: i32) {
    // expected-error @+1 {{expected a multiple of 16 along query, got 24}}
    %0 = tile.coordinates %i : !tile.fragment<[query 24], i32>
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
