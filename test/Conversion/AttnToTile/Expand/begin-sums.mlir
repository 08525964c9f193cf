// RUN: attn-opt %s --emit=tile --target=sm_90a | FileCheck %s

// The kernel that begins sums of rows reads each output and its gradient once, 16 bytes of a lane at a time, and copies
// nothing to shared memory. The order of features is free: they are added up. Zeros leave as 16 bytes of a lane, too.

!even = tensor<?x8x64xbf16>
!even_kv = !attn.kv<packed, heads = 8, dim = 64, key = bf16, value = bf16>
!odd = tensor<?x8x56xbf16>
!odd_kv = !attn.kv<packed, heads = 8, dim = 64, value_dim = 56, key = bf16, value = bf16>

// CHECK-LABEL: func.func @even_begin128
// CHECK-NOT: tile.alloc
// CHECK: tile.load_features
// CHECK: } : <bf16> -> <[query 16, feature 64], f32, acc, runs 32>
// CHECK: tile.load_features
// CHECK: } : <bf16> -> <[query 16, feature 64], f32, acc, runs 32>
// CHECK: tile.reduce add {{.*}} : <[query 16, feature 64], f32, acc, runs 32> -> <[query 16], f32, row>
// CHECK: tile.store
// CHECK: } : <[query 16, feature 64], f32, acc, runs 16> -> <f32>
// CHECK-NOT: tile.alloc
// CHECK: return
func.func @even(%q: !even {attn.name = "q"}, %kv: !even_kv {attn.name = "kv"}) -> !even attributes {attn.backward} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !even, !even_kv -> !even
  return %o : !even
}

// Values have 56 of 64 columns, and the others count as zeros.
// CHECK-LABEL: func.func @odd_begin128
// CHECK: tile.load_features
// CHECK: } {columns = 56 : i64} : <bf16> -> <[query 16, feature 64], f32, acc>
// CHECK: tile.coordinates {{.*}} : <[feature 64], i32, col>
// CHECK: arith.cmpi slt, %{{.*}}, %c56_i32
// CHECK: return
func.func @odd(%q: !even {attn.name = "q"}, %kv: !odd_kv {attn.name = "kv"}) -> !odd attributes {attn.backward} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !even, !odd_kv -> !odd
  return %o : !odd
}
