// RUN: attn-opt %s --emit=manifest --target=sm_80 | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt %s --emit=tile --target=sm_80 | FileCheck %s
// RUN: attn-opt %s --emit=tile --target=sm_90a --schedule=wgmma | FileCheck %s --check-prefix=HOPPER

// MANIFEST: "kv_heads": 4,
// MANIFEST-NEXT: "name": "own"
// MANIFEST-NEXT: "page": 16
// MANIFEST-NEXT: "ragged": true
// MANIFEST: "name": "shared"
// MANIFEST-NOT: "ragged"
// MANIFEST: "operands"

// The table of a ragged store has a row for each head of an instance, other tables have one for each
// instance.
// CHECK: func.func @both_rows16
// CHECK: scf.for {{.*}} iter_args({{[^,]*, [^,]*, }}%[[HEAD:[a-z0-9]+]] =
// CHECK: scf.for {{.*}} iter_args({{[^,]*, [^,]*, [^,]*, [^,]*, }}%[[INSTANCE:[a-z0-9]+]] =
// CHECK: %[[FIRST:.*]] = arith.muli %[[INSTANCE]], %c4_i32 : i32
// CHECK-NEXT: %[[LIST:.*]] = arith.addi %[[FIRST]], %[[HEAD]] : i32
// CHECK: tile.lookup warp
// CHECK: tile.paged_slot %{{.*}}[%[[LIST]], %{{.*}}] columns
// CHECK: tile.gather warp {{.*}} at %
// CHECK: tile.lookup warp
// CHECK: tile.paged_slot %{{.*}}[%[[INSTANCE]], %{{.*}}] columns

// Boxes serve a ragged store, too: a head's slice of a page is at its usual offset.
// HOPPER: func.func @both_rows128
// HOPPER: %[[LIST:.*]] = arith.addi %{{.*}}, %[[HEAD:[0-9]+#2]] : i32
// HOPPER: tile.paged_slot start %{{.*}}[%[[LIST]], %{{.*}}] columns
// HOPPER: tile.tma_load {{.*}} head %[[HEAD]] lines 16
// HOPPER: tile.tma_load {{.*}} lines 64
// HOPPER-NOT: tile.gather
!query = tensor<?x8x64xf16>
!own = !attn.kv<paged<16>, ragged, heads = 4, dim = 64, key = f16, value = f16>
!shared = !attn.kv<paged<16>, heads = 4, dim = 64, key = f16, value = f16>
func.func @both(%q: !query {attn.name = "q"}, %own: !own {attn.name = "own"}, %shared: !shared {attn.name = "shared"})
    -> !query {
  %o = attn.attend %q over (%own see all), (%shared see causal) : !query, !own, !shared -> !query
  return %o : !query
}
