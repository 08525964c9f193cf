// RUN: attn-opt %s --emit=manifest --target=sm_80 | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt %s --emit=tile --target=sm_80 | FileCheck %s

// MANIFEST: "name": "high"
// MANIFEST-NEXT: "page": 32
// MANIFEST-NEXT: "ragged": true
// MANIFEST: "store": "unified"

// One distance of pages serves all sources; a page has no head index.
// CHECK: func.func @both_rows16
// CHECK: tile.lookup warp
// CHECK: tile.paged_slot
// CHECK: tile.gather warp {{.*}} origins %[[ZERO:[^,]*]], %[[ZERO]], {{.*}} strides [128, 128, 2, 2] page 32 apart %[[APART:[^ ]*]]
// CHECK: tile.gather warp {{.*}} page 64 apart %

!query = tensor<?x8x128xf16>
!high = !attn.kv<unified<32>, heads = 4, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!low = !attn.kv<unified<64>, heads = 4, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
func.func @both(%q: !query {attn.name = "q"}, %high: !high {attn.name = "high"}, %low: !low {attn.name = "low"}) -> !query {
  %o = attn.attend %q over (%high see all), (%low see all) : !query, !high, !low -> !query
  return %o : !query
}
