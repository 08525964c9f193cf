// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s

// With producer warps, copies are fills of rings, and do not say when they run. (Without: stage-operands.mlir.)

!query = tensor<?x8x64xbf16>
!pages = !attn.kv<paged<64>, heads = 2, dim = 64, key = bf16, value = bf16>
!dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!single = !attn.kv<paged<1>, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#boxes = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, query_stages = 1, query_copy = boxes 64, key_copies = [boxes 64, boxes 128], value_copies = [boxes 64, boxes 128], value_boxes = 0, epilogue = send>
#gathers = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, query_stages = 1, query_copy = gather, key_copies = [gather], value_copies = [gather], value_boxes = 0, epilogue = store>

gpu.module @kernels {
  func.func @fetched(%q: !query {attn.name = "q"}, %a: !pages {attn.name = "a"}, %b: !dense {attn.name = "b"}) -> !query attributes {tile.schedule = #boxes} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see all scale 1.0 : !query, !pages -> !state
    %2 = attn.update %1, %q, %b see causal scale 1.0 : !query, !dense -> !state
    %o = attn.finish %2 : !state -> !query
    return %o : !query
  }
  func.func @gathered(%q: !query {attn.name = "q"}, %a: !single {attn.name = "a"}) -> !query attributes {tile.schedule = #gathers} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see all scale 1.0 : !query, !single -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}

// CHECK-LABEL: func.func @fetched(
// CHECK-SAME: tile.key_align = 64 : i32
// CHECK: %[[QUERIES:.*]] = tile.alloc : !tile.ring<1, <query 128, feature 64, bf16, boxes 64>>
// CHECK-NEXT: %[[KEYS:.*]] = tile.alloc : !tile.ring<2, <key 128, feature 64, bf16>>
// CHECK-NEXT: %[[VALUES:.*]] = tile.alloc : !tile.ring<2, <key 128, feature 64, bf16>>
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK: %[[KNOWN:.*]] = attn.staged %[[ROWS]] in position
// CHECK-NEXT: %[[Q:.*]] = tile.produce %[[QUERIES]] warp 2
// CHECK: tile.tma_load
// CHECK: %[[IN_Q:.*]] = attn.staged %[[KNOWN]] in query %[[Q]]
// The region of a tile is tested outside of the loop.
// CHECK: %[[IS_A:.*]] = arith.cmpi eq, %[[SEGMENT:.*]]#0, %c0_i32
// CHECK-NEXT: scf.for %[[KEY:[^ ]*]] =
// CHECK: %[[TA:.*]] = attn.tokens
// CHECK-NEXT: %[[TB:.*]] = attn.tokens
// CHECK-NEXT: %[[SLOT:.*]] = scf.if %[[IS_A]] -> (i32) {
// CHECK-NEXT: tile.ahead %[[KEY]]
// CHECK: } else {
// CHECK-NEXT: tile.ahead %[[KEY]]
// CHECK: %[[K:.*]] = tile.produce %[[KEYS]] warp 0
// CHECK-SAME: (%[[TILE:.*]]: !tile.shared
// CHECK-NEXT: scf.if %[[IS_A]] {
// CHECK-NEXT: tile.tma_load {{.*}} from %[[SLOT]] {{.*}} lines 64 into %[[TILE]] :
// CHECK-NEXT: } else {
// CHECK-NEXT: tile.tma_load {{.*}} from %[[SLOT]] {{.*}} lines 128 into %[[TILE]] :
// Values past the segment's last token may be anything.
// CHECK: %[[V:.*]] = tile.produce %[[VALUES]] warp 1
// CHECK: %[[LEFT:.*]] = arith.subi %[[SEGMENT]]#3, %[[KEY]]
// CHECK-NEXT: tile.clear %{{.*}} from %[[LEFT]]
// CHECK: %[[SA:.*]] = attn.staged %[[TA]] in keys %[[K]], values %[[V]]
// CHECK: %[[SB:.*]] = attn.staged %[[TB]] in keys %[[K]], values %[[V]]
// CHECK: attn.update %{{.*}}, %[[IN_Q]], %[[SA]]
// CHECK-NEXT: attn.update %{{.*}}, %[[IN_Q]], %[[SB]]
// Results leave through the queries' tile.
// CHECK: %[[OUT:.*]] = attn.staged %{{.*}} in query %[[Q]]
// CHECK: attn.write %{{.*}} of %[[OUT]]

// CHECK-LABEL: func.func @gathered(
// CHECK-NOT: tile.key_align
// CHECK: tile.produce %{{[^ ]*}}
// CHECK: tile.gather producers
// CHECK: %[[SLOTS:.*]] = tile.lookup producers
// CHECK: tile.produce %{{[^ ]*}}
// CHECK: tile.gather producers {{.*}} at %[[SLOTS]]
// CHECK: tile.produce %{{[^ ]*}}
// CHECK: tile.gather producers {{.*}} at %[[SLOTS]]
// CHECK-NOT: tile.clear
