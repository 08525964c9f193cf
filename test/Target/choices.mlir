// RUN: attn-opt %s --emit=ptx --target=sm_90a --schedule=mma | FileCheck %s

// Quantized elements of four bits take their signs from one word and the rest from another: one instruction,
// from whose masks LLVM drops no bits that it knows to be zero.
// CHECK-LABEL: .entry e2m1_rows8(
// CHECK: lop3.b32 %[[BOTH:r[0-9]+]], %{{r[0-9]+}}, %{{r[0-9]+}}, 2155905152, 0xE4;
// CHECK: and.b32 %{{r[0-9]+}}, %[[BOTH]], -1912566272;
// CHECK-NOT: and.b32 {{.*}}, -2139062144;
// CHECK-LABEL: .entry e2m1_rows16(
!query = tensor<?x8x64xbf16>
!codes = !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !codes, value = !codes>
func.func @e2m1(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
