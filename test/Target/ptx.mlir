// RUN: attn-opt %s --emit=ptx --target=sm_80 | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: attn-opt %s --emit=ptx --target=sm_89 | FileCheck %s --check-prefixes=CHECK,SM89
// RUN: attn-opt %s --emit=ptx --target=sm_90a --schedule=mma | FileCheck %s --check-prefixes=CHECK,SM90
// RUN: attn-opt %s --emit=ptx --target=sm_100a | FileCheck %s --check-prefixes=CHECK,SM100
// RUN: attn-opt %s --emit=ptx --target=sm_120a | FileCheck %s --check-prefixes=CHECK,SM120
// RUN: attn-opt %s --emit=ptx --schedule=mma | FileCheck %s --check-prefix=NEVER
// RUN: attn-opt %s --emit=ptx > %t.1 && attn-opt %s --emit=ptx > %t.2 && cmp %t.1 %t.2
// RUN: sed s/bf16/f16/g %s | attn-opt - --emit=ptx --schedule=mma | FileCheck %s --check-prefix=F16
// RUN: attn-opt %s --emit=ptx | FileCheck %s --check-prefix=ONCE

// Kernels are compiled separately, and yet one module: their common beginning occurs once.
// ONCE: .version
// ONCE: .extern .shared
// ONCE-NOT: {{[.]version|[.]target|[.]extern}}
// ONCE: .visible .entry decode_rows16(
// ONCE-NOT: {{[.]version|[.]target|[.]extern}}
// ONCE: .visible .entry decode_rows128(
// ONCE-NOT: {{[.]version|[.]target|[.]extern}}
// ONCE: .visible .entry decode_merge(
// ONCE-NOT: {{[.]version|[.]target|[.]extern}}

// The lowest PTX version that has the chip: older drivers accept it.
// SM80: .version 7.0
// SM80-NEXT: .target sm_80
// SM89: .version 7.8
// SM89-NEXT: .target sm_89
// SM90: .version 8.0
// SM90-NEXT: .target sm_90a
// SM100: .version 8.6
// SM100-NEXT: .target sm_100a
// SM120: .version 8.7
// SM120-NEXT: .target sm_120a
// CHECK: .extern .shared .align 1024 .b8 attn_shared[];

// CHECK: .visible .entry decode_rows16(
// CHECK: .reqntid 128
// CHECK-NEXT: .minnctapersm {{[12]}}
// Plan records are read as one request and passed on by shuffle; copies are 16 bytes past the L1, with a size
// that is 0 past the end.
// CHECK-DAG: ld.global.nc.b32
// CHECK-DAG: cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16, %r
// CHECK-DAG: cp.async.commit_group
// The page of a token is looked up once and passed on by shuffle. Warps are independent in the loop over keys.
// CHECK-DAG: shfl.sync.idx.b32
// CHECK-DAG: bar.warp.sync
// CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-DAG: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-DAG: shfl.sync.bfly.b32
// CHECK-DAG: ex2.approx.ftz.f32
// CHECK-DAG: cvt.rn.bf16x2.f32
// The exchange between warps.
// CHECK-DAG: st.shared.v4.b32
// CHECK-DAG: lg2.approx.ftz.f32
// CHECK-DAG: rcp.approx.ftz.f32

// CHECK: .visible .entry decode_rows{{64|128}}(
// CHECK: .reqntid {{128|256}}
// CHECK-DAG: cp.async.cg.shared.global
// CHECK-DAG: cp.async.wait_group
// CHECK-DAG: bar.sync
// CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-DAG: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

// CHECK: .visible .entry decode_merge(
// CHECK: .reqntid 128
// CHECK-NOT: cp.async
// CHECK-DAG: ex2.approx.ftz.f32
// CHECK-DAG: rcp.approx.ftz.f32
// CHECK-DAG: ld.global.v4.b32
// CHECK-DAG: st.global.v2.b32

// No local memory, no calls, no generic addresses, no 64-bit floats, no exact division.
// NEVER: .version
// NEVER-NOT: {{[.]local|call|ld[.]b|st[.]b|[.]f64|div[.](rn|full)}}

// F16: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// F16-NOT: bf16
!query = tensor<?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal) : !query, !cache -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}
