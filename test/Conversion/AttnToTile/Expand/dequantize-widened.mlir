// RUN: attn-opt %s --emit=tile | FileCheck %s

// wgmma reads f16 from shared memory, to which producers widen tiles. Their loop copies the next tile of quantized values
// and metadata while they widen one. Keys stay exact, and warps that compute apply their scales and zeros to scores;
// values take theirs from producers. Queries become f16 in registers.
// CHECK-LABEL: @prefill_rows128(
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 128, f16, swizzled>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 128, f16, swizzled>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 128, i8, swizzled>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 128, i4, swizzled>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 2, f16>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 2, f16>>
// CHECK: tile.alloc {{.*}} : !tile.ring<2, <key 96, feature 2, f32>>
// CHECK: tile.set_registers 80
// CHECK: tile.gather producers
// CHECK: tile.commit
// CHECK: scf.for
// CHECK: tile.wait 0
// CHECK-NEXT: tile.sync producers
// CHECK: tile.gather producers {{.*}} -> !tile.shared<key 96, feature 128, i8, swizzled>, !tile.shared<key 96, feature 128, i4, swizzled>, !tile.shared<key 96, feature 2, f16>, !tile.shared<key 96, feature 2, f16>
// CHECK: tile.mbarrier_wait {{.*}} before
// CHECK: tile.widen_tile {{.*}} : <key 96, feature 128, i8, swizzled> -> <key 96, feature 128, f16, swizzled>
// CHECK: tile.fence_async
// CHECK: tile.arrive
// CHECK: tile.widen_tile {{.*}} : <key 96, feature 2, f16> -> <key 96, feature 2, f32>
// CHECK: tile.widen_tile {{.*}} by {{.*}} : <key 96, feature 128, i4, swizzled> by !tile.shared<key 96, feature 2, f16> -> <key 96, feature 128, f16, swizzled>
// CHECK: tile.set_registers increase 208
// CHECK: %[[Q:.*]], %{{.*}} = tile.narrow
// CHECK: tile.reduce
// CHECK: scf.for
// CHECK: tile.start_mma %[[Q]], {{.*}}, <key 96, feature 128, f16, swizzled> -> <[query 16, key 96], f32, acc>
// CHECK: tile.load_columns {{.*}} : <key 96, feature 2, f32>
!query = tensor<?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
func.func @prefill(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
