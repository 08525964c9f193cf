// RUN: attn-opt %s --emit=ptx --target=sm_90a | FileCheck %s --check-prefixes=CHECK,HINTS
// RUN: attn-opt %s --emit=ptx --target=sm_80 | FileCheck %s --check-prefixes=CHECK,NONE
// RUN: sed 's/attributes {attn.significance = "max"}//' %s | attn-opt --emit=ptx --target=sm_90a | FileCheck %s --check-prefix=PLAIN

// Scores that wait for their weights stay in the L2 while keys and values stream past, which are evicted
// first. Scores that have been read are discarded: they need not go to memory. A copy's address is or-ed with
// a zero that ptxas cannot recognize: ptxas would lose the policy of an address that is the sum of a lane's
// number and a uniform one. Queries have no policy. PTX of sm_80 has no policies and no discard. Either way a
// thread has all of its loads in flight before it writes: LLVM would move each load into the branch that
// writes its result.

!q = tensor<?x8x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>

func.func @step(%q: !q {attn.name = "q", attn.dims = ["rows"]}, %kv: !kv {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!q, tensor<?x8xf32>) attributes {attn.significance = "max"} {
  %o, %lse = attn.attend %q over (%kv see causal) : !q, !kv -> !q, tensor<?x8xf32>
  return %o, %lse : !q, tensor<?x8xf32>
}

// PLAIN-NOT: {{createpolicy|cache_hint}}
// NONE-NOT: {{createpolicy|cache_hint|discard}}

// CHECK-LABEL: .visible .entry step_rows16(
// HINTS-DAG: createpolicy.fractional.L2::evict_last.b64 [[LAST:%rd[0-9]+]], 1.0;
// HINTS-DAG: createpolicy.fractional.L2::evict_first.b64 [[GO:%rd[0-9]+]], 1.0;
// HINTS-DAG: mov.u32 own, %lanemask_eq; mov.u32 before, %lanemask_lt; and.b32 own, own, before; cvt.u64.u32 [[ZERO:%rd[0-9]+]], own;
// CHECK: cp.async.cg.shared.global [%rd
// HINTS: or.b64 to, %rd{{[0-9]+}}, [[ZERO]]; cp.async.cg.shared.global.L2::cache_hint [to], [%rd{{[0-9]+}}], 16, %r{{[0-9]+}}, [[GO]];
// HINTS-NOT: cp.async.cg.shared.global [%rd
// HINTS: st.global.L2::cache_hint.b16 [{{.*}}], {{.*}}, [[LAST]];
// NONE: st.global.b16

// CHECK-LABEL: .visible .entry step_weigh(
// HINTS: createpolicy.fractional.L2::evict_first.b64 [[FIRST:%rd[0-9]+]], 1.0;
// HINTS: griddepcontrol.wait;
// HINTS-COUNT-4: ld.global.L2::cache_hint.v2.b32 {{{.*}}}, [{{.*}}], [[FIRST]];
// NONE-COUNT-4: ld.global.v2.b32
// NONE-NOT: ld.global.v2.b32
// HINTS-NOT: L2::cache_hint
// CHECK: st.global.b32
// HINTS: bar.warp.sync
// HINTS: discard.global.L2 [{{.*}}], 128;
// HINTS-COUNT-3: discard.global.L2
// HINTS-NOT: discard
// CHECK: ret;
