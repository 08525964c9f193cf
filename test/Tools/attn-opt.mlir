// Every level can be printed, to a file or to the standard output.
// RUN: attn-opt %s --emit=problem | FileCheck %s --check-prefix=PROBLEM
// RUN: attn-opt %s --emit=online | FileCheck %s --check-prefix=ONLINE
// RUN: attn-opt %s --emit=tile | FileCheck %s --check-prefix=TILE
// RUN: attn-opt %s --emit=machine | FileCheck %s --check-prefix=MACHINE
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o %t.ptx && FileCheck %s --check-prefix=PTX < %t.ptx
// RUN: attn-opt %s --emit=manifest | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt - --emit=problem < %s | FileCheck %s --check-prefix=PROBLEM

// Printed levels can be read again, and the passes do step by step what --emit does at once.
// RUN: attn-opt %s --emit=online | attn-opt --attn-choose-schedule --attn-to-tile --tile-infer-layouts \
// RUN:   --tile-skip-full-masks --tile-pipeline-copies --tile-allocate-shared --tile-fold-constants | FileCheck %s --check-prefix=TILE
// RUN: attn-opt %s --emit=tile | attn-opt | FileCheck %s --check-prefix=TILE
// RUN: attn-opt %s --emit=machine | attn-opt | FileCheck %s --check-prefix=MACHINE
// RUN: attn-opt %s --attn-pipeline | FileCheck %s --check-prefix=MACHINE

// PROBLEM: attn.attend %{{.*}} over (%{{.*}} see causal) scale 0.125
// ONLINE: attn.update
// TILE: tile.schedule = #tile.schedule<mma, rows = 16
// TILE: tile.mma
// MACHINE-LABEL: gpu.module @decode_kernels
// MACHINE-NOT: tile.mma
// MACHINE: llvm.func @decode_rows16(
// MACHINE: nvvm.mma.sync
// MACHINE: llvm.func @decode_merge(
// PTX: .visible .entry decode_rows16(
// MANIFEST: "entry": "decode"
!query = tensor<?x8x64xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 64, key = bf16, value = bf16>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
