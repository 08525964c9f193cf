// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_90a | FileCheck %s --check-prefix=SM90

// Latents in e4m3: two warps share the rows of a tile. Each computes the scores of half of a tile's tokens, panel by panel,
// from queries that become left operands of f16 in place, once for a task. They exchange the largest scores of rows and then
// weights, and each accumulates 256 features, of its own panels of the keys' tile.
// CHECK-LABEL: @decode_rows16(
// CHECK-SAME: warps = 2, stages = 2, blocks = 4, {{.*}} value_slices = 2, shared_weights = true, shared_bytes = 56576
// CHECK: %[[TILE:.*]] = tile.alloc {{.*}} : !tile.shared<query 16, feature 576, bf16, swizzled>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 32, feature 576, f8E4M3FN, swizzled>>
// CHECK: %[[WEIGHTS:.*]] = tile.alloc {{.*}} : !tile.shared<query 32, key 16, f16, swizzled>
// CHECK: %[[UNITS:.*]] = tile.alloc {{.*}} : !tile.shared<query 64, feature 1, f32>
// CHECK: %[[LARGEST:.*]] = tile.alloc overlays %[[UNITS]] {{.*}} : !tile.scratch<8>
// CHECK-NOT: tile.alloc
// CHECK: %[[FIRST:.*]] = arith.cmpi eq
// CHECK: %[[Q:.*]], %[[FACTOR:.*]] = tile.narrow_tile %[[TILE]] by %[[LARGEST]] if %[[FIRST]] :
// CHECK: scf.for
// CHECK: tile.gather {{.*}} : !tile.buffer<f8E4M3FN> -> !tile.shared<key 32, feature 576, f8E4M3FN, swizzled>
// CHECK: %[[PANEL:.*]] = tile.panels {{.*}} -> <key 32, feature 128, f8E4M3FN, swizzled>
// CHECK: tile.overlay %[[PANEL]] at %{{.*}} -> <key 16, feature 128, f8E4M3FN, swizzled>
// CHECK: tile.load_rhs {{.*}} -> <[key 16, feature 128], f8E4M3FN, rhs, runs 64>
// CHECK: tile.widen {{.*}} -> <[key 16, feature 128], f16, rhs, runs 64>
// CHECK: tile.load_lhs %[[Q]] from 0 : <18432> -> <[query 16, feature 128], f16, lhs, runs 64>
// CHECK: tile.mma
// CHECK: tile.load_lhs %[[Q]] from 512 : <18432> -> <[query 16, feature 64], f16, lhs, runs 64>
// CHECK: tile.mma
// CHECK: arith.mulf %{{.*}}, %[[FACTOR]]
// CHECK: tile.reduce max
// CHECK: tile.stage %{{.*}} into %[[UNITS]]
// CHECK: tile.sync block
// CHECK: tile.load_columns
// CHECK: arith.maxnumf
// CHECK: tile.stage %{{.*}} into %[[WEIGHTS]]
// CHECK: tile.sync block
// CHECK: tile.panels {{.*}} -> <key 32, feature 256, f8E4M3FN, swizzled>
// CHECK: tile.load_rhs {{.*}} -> <[feature 256, key 32], f8E4M3FN, rhs, runs 128>
// CHECK: tile.part %{{.*}} from 0 : {{.*}} -> <[feature 256, key 16], f16, rhs, runs 128>
// CHECK: tile.load %[[WEIGHTS]]
// CHECK: tile.mma
// CHECK: tile.part %{{.*}} from 16
// CHECK: tile.load %[[WEIGHTS]]
// CHECK: tile.mma

// SM90-NOT: fma.rn.bf16
// SM90: cvt.rn.f16x2.e4m3x2
!query = tensor<?x16x576xbf16>
!output = tensor<?x16x512xbf16>
!cache = !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !output {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !output
  return %o : !output
}
