// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s
// RUN: attn-opt %s --emit=ptx -o - 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: attn-opt %s --emit=ptx --target=sm_80 | FileCheck %s --check-prefix=SM80
// RUN: attn-opt %s --emit=ptx --target=sm_90a --schedule=mma | FileCheck %s --check-prefix=SM90

// Tiles hold quantized values, and MMAs get the widened ones. The scales of the task's head are folded into the unit
// of the scores and into the division at the end: the loop has none of them.
// CHECK-LABEL: @decode_rows16(
// CHECK: tile.alloc {{.*}} : !tile.ring<{{.*}}, <key 32, feature 64, f8E4M3FN, swizzled>>
// CHECK: tile.alloc {{.*}} : !tile.ring<{{.*}}, <key 32, feature 64, f8E4M3FN, swizzled>>
// CHECK: scf.for
// CHECK: %[[KS:.*]] = tile.read %{{.*}} : <f32> -> f32
// CHECK: %[[UNIT:.*]] = arith.mulf %{{.*}}, %[[KS]] : f32
// CHECK: %[[VS:.*]] = tile.read %{{.*}} : <f32> -> f32
// CHECK: tile.gather {{.*}} : !tile.buffer<f8E4M3FN>, !tile.buffer<f8E4M3FN>
// CHECK: tile.narrow
// CHECK: tile.load_rhs {{.*}} -> <[key 32, feature 64], f8E4M3FN, rhs, runs 64>
// CHECK: tile.widen {{.*}} -> <[key 32, feature 64], f16, rhs, runs 64>
// CHECK: tile.mma
// CHECK: tile.load_rhs {{.*}} -> <[feature 64, key 32], f8E4M3FN, rhs, runs 64>
// CHECK: tile.widen
// CHECK: tile.mma
// CHECK: tile.merge_warps
// CHECK: %[[INVERSE:.*]] = tile.reciprocal
// CHECK-NEXT: arith.mulf %[[INVERSE]], %[[VS]] : f32

// REMARK: schedule wgmma for prefill

// SM80-NOT: cvt.rn.f16x2.e4m3x2
// SM80: mma.sync
// SM90: cvt.rn.f16x2.e4m3x2
!query = tensor<?x8x64xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
