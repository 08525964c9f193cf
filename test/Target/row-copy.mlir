// RUN: attn-opt %s --emit=manifest --entry=gather | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt %s --emit=ptx --entry=gather --target=sm_80 | FileCheck %s --check-prefix=PTX
// RUN: attn-opt %s --emit=problem --entry=append | FileCheck %s --check-prefix=PROBLEM
// RUN: attn-opt %s --emit=machine --entry=append | FileCheck %s --check-prefix=MACHINE
// RUN: for t in sm_80 sm_89 sm_90a sm_100a sm_120a; do for e in append move gather; do attn-opt %s --emit=cubin --target=$t --entry=$e --ptxas-verbose -o %t.cubin; done; done 2>&1 | FileCheck %s --check-prefix=PTXAS

// MANIFEST: "dims": [
// MANIFEST-NEXT: "rows"
// MANIFEST-NEXT: ]
// MANIFEST-NEXT: "dtype": "i32"
// MANIFEST-NEXT: "name": "slots"
// MANIFEST-NEXT: "role": "slots"
// MANIFEST: "entry": "gather"
// MANIFEST: "blocks_per_sm": 4
// MANIFEST: "name": "row_count"
// MANIFEST: "name": "kv.k_layer"
// MANIFEST: "pieces": 1
// MANIFEST-NEXT: "role": "gather"
// MANIFEST-NEXT: "rows_per_warp": 8
// MANIFEST: "launches": [
// MANIFEST: "grid": "rows"
// MANIFEST: "operands": []
// MANIFEST: "plan": {
// MANIFEST-NEXT: "arrays": []
// MANIFEST: "results": [
// MANIFEST: "layers"
// MANIFEST-NEXT: "rows"
// MANIFEST-NEXT: 2
// MANIFEST-NEXT: 80
// MANIFEST-NEXT: ]
// MANIFEST-NEXT: "dtype": "bf16"
// MANIFEST-NEXT: "name": "k"
// MANIFEST: "schedule": "copy"

// Sixteen bytes at a time, not through the constant path: the cache is written between launches that may overlap.
// PTX: .visible .entry gather(
// PTX: .reqntid 128
// PTX-NEXT: .minnctapersm 4
// PTX-NOT: ld.global.nc.v4
// PTX: ld.global.v4.b32
// PTX: st.global.v4.b32
// PTX-NOT: {{[.]local|call|ld[.]b|st[.]b}}

// PROBLEM: attn.append
// PROBLEM-NOT: attn.move
// MACHINE: llvm.func @append

// PTXAS-COUNT-15: 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads

!rows = tensor<?x?x2x80xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 80, key = bf16, value = bf16>
!slots = tensor<?xi32>
func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: !slots {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, !slots
  return
}
func.func @move(%kv: !cache {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !cache, !slots, !slots
  return
}
func.func @gather(%kv: !cache {attn.name = "kv"}, %slots: !slots {attn.name = "slots"}) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !cache, !slots -> !rows, !rows
  return %k, %v : !rows, !rows
}
