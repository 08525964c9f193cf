// RUN: attn-opt %s --emit=tile --schedule=mma --target=sm_90a | FileCheck %s

// Latents in e4m3 with 64 features in bf16, in lines of 656 bytes: one gather copies the parts of a line to three tiles. Only
// the queries of the quantized features become f16. The product of each group takes its tokens' scales in f32, that of the rest
// takes none, and each group of values has weights of its own.
// CHECK-LABEL: @decode_rows16(
// CHECK: %[[TILE:.*]] = tile.alloc {{.*}} : !tile.shared<query 16, feature 576, bf16, swizzled>
// CHECK: tile.panels %[[TILE]] from %c0_i32 : {{.*}} -> <query 16, feature 512, bf16, swizzled>
// CHECK: %[[REST:.*]] = tile.panels %[[TILE]] from %c512_i32 : {{.*}} -> <query 16, feature 64, bf16, swizzled>
// CHECK: %[[Q:.*]], %[[FACTOR:.*]] = tile.narrow_tile {{.*}} <query 16, feature 512, bf16, swizzled>
// CHECK: tile.gather {{.*}} pitches {{.*}} : !tile.buffer<i8>, !tile.buffer<i8>, !tile.buffer<i8> ->
// CHECK-SAME: !tile.shared<key 16, feature 512, f8E4M3FN, swizzled>, !tile.shared<key 16, feature 64, bf16, swizzled>, !tile.shared<key 16, feature 4, f32>
// CHECK: %[[SCALES:.*]]:4 = tile.load_columns
// CHECK: tile.load_lhs %[[Q]] from 0 : <16384> -> <[query 16, feature 128], f16, lhs, runs 64>
// CHECK: tile.load_lhs %[[Q]] from 256
// CHECK: tile.mma %[[REST]] at {{.*}} !tile.shared<key 16, feature 64, bf16, swizzled>
// CHECK: tile.load_lhs %[[Q]] from 384
// CHECK: %[[FIRST:.*]] = tile.part %[[ACC:.*]] from 0 : <[query 16, feature 256], f32, acc, runs 128> -> <[query 16, feature 128], f32, acc, runs 128>
// CHECK: %[[A:.*]] = tile.mma {{.*}}, %[[FIRST]]
// CHECK: %[[SECOND:.*]] = tile.part %[[ACC]] from 128
// CHECK: %[[B:.*]] = tile.mma {{.*}}, %[[SECOND]]
// CHECK: tile.join %[[A]], %[[B]]
!query = tensor<?x16x576xbf16>
!output = tensor<?x16x512xbf16>
!cache = !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = first<512>>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !output {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !output
  return %o : !output
}
