// RUN: attn-opt %s --emit=tile --target=sm_90a --schedule=mma | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_90a --schedule=mma | FileCheck %s --check-prefix=PTX --implicit-check-not=div.u --implicit-check-not=rem.u

// The tokens of a page need not be a power of two. A lookup divides by a constant: a multiplication by 2^38 / 49 and a
// shift, since 784 = 16 * 49, once for the token of each lane.

// CHECK: func.func @odd_rows16
// CHECK: tile.paged_slot {{.*}} page 784 apart %
// Slots of unified pages are counted in steps of a power of two: lines find their page by a shift and a mask.
// CHECK: tile.paged_slot {{.*}} page 528 apart %c1024_i32
// CHECK: tile.gather warp {{.*}} page 1024 apart %

// PTX: .entry odd_rows16(
// PTX: mul.hi.u32 [[PAGE:%r[0-9]+]], {{%r[0-9]+}}, 1402438301
// PTX: shr.u32 {{%r[0-9]+}}, [[PAGE]], 8

!query = tensor<?x8x64xf16>
!pages = !attn.kv<paged<784>, heads = 2, dim = 64, key = f16, value = f16>
!codes = !attn.kv<unified<528>, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i4, per = 64>>
func.func @odd(%q: !query {attn.name = "q"}, %kv: !pages {attn.name = "kv"}, %low: !codes {attn.name = "low"}) -> !query {
  %o = attn.attend %q over (%kv see causal), (%low see all) : !query, !pages, !codes -> !query
  return %o : !query
}
