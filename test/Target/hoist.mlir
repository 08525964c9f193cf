// RUN: attn-opt %s --emit=ptx --target=sm_90a --schedule=mma | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --emit=ptx --target=sm_80 --schedule=mma | FileCheck %s --check-prefix=AMPERE

// The numbers of the bytes that a lane extracts from its tokens' scales do not change. Kernels of eight rows
// compute them before their loops from Hopper on, where registers are spare; in the others hoisting is left
// to ptxas.
// HOPPER-LABEL: .entry e2m1_rows8(
// HOPPER-COUNT-2: , 4369
// HOPPER: cp.async.wait_group
// HOPPER-NOT: , 4369
// HOPPER-LABEL: .entry e2m1_rows16(

// AMPERE-LABEL: .entry e2m1_rows8(
// AMPERE-NOT: , 4369
// AMPERE: cp.async.wait_group
// AMPERE-COUNT-2: , 4369
// AMPERE-LABEL: .entry e2m1_rows16(
!query = tensor<?x8x64xbf16>
!codes = !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !codes, value = !codes>
func.func @e2m1(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
