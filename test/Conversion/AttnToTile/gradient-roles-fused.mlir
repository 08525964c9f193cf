// RUN: attn-opt %s --target=sm_90a --emit=tile | FileCheck %s
// RUN: attn-opt %s --target=sm_90a --emit=tile | FileCheck %s --check-prefix=LONG

// The roles of a kernel with stationary tokens that also adds to rows: four producer warps, and two warpgroups that
// exchange gradients of scores in shared memory.

!q = tensor<?x8x128xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 128, key = bf16, value = bf16>
func.func @half(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !q, !kv -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @half_tokens128_kv(
// CHECK: %[[TASK:.*]]:10 = tile.record
// CHECK: %[[SUMS:.*]] = tile.alloc {{.*}} : !tile.shared<query 64, feature 128, f32, swizzled>
// Two exchange tiles alternate. Numbers of rows and barriers lie after all tiles.
// CHECK: %[[EXCHANGES:.*]] = tile.alloc {{.*}} : !tile.ring<2, <key 128, query 64, bf16, swizzled>>
// CHECK-NEXT: tile.alloc {{.*}} : !tile.ring<3, <query 192, feature 1, f32>>
// CHECK-COUNT-10: tile.alloc {{.*}} : !tile.barriers
// CHECK-NEXT: tile.init_barriers
// Warp 0 loads keys by TMA, and gathers the numbers of rows: LSEs, deltas and positions. Lines past the last token
// are cleared, because gradients of rows are sums over tokens. Rows are walked from either end.
// CHECK: tile.set_registers 24
// CHECK: tile.tma_load {{.*}} lines 128 into %[[K:.*]] on
// CHECK: tile.clear %[[K]]
// CHECK: arith.cmpi slt, %[[TASK]]#6, %[[TASK]]#5
// All three arrive at one mbarrier.
// CHECK: tile.mbarrier_wait
// LSEs and deltas lie by KV heads, so that those of a tile's packed rows are neighbours.
// CHECK: %[[PACKED:.*]] = arith.muli %{{.*}}, %c4_i32
// CHECK: %[[HEAD:.*]] = arith.muli %[[TASK]]#4, %[[PACKED]]
// CHECK: tile.gather warp
// CHECK: arith.addi %[[HEAD]], %
// CHECK-NOT: tile.arrive_on_copies
// CHECK: tile.gather warp
// CHECK: arith.addi %[[HEAD]], %
// CHECK-NOT: tile.arrive_on_copies
// CHECK: tile.gather warp
// CHECK: tile.arrive_on_copies
// Warp 1 loads values and the gradients of outputs, warp 2 queries.
// CHECK: tile.tma_load {{.*}} lines 128 into
// CHECK-NOT: tile.gather
// CHECK: tile.tma_load {{.*}} lines 64 into %[[DO:.*]] on
// CHECK: tile.clear %[[DO]]
// CHECK: tile.tma_load {{.*}} lines 64 into %[[Q:.*]] on
// CHECK: tile.clear %[[Q]]
// Warp 3 stores a half of the features by TMA when the four warps of a warpgroup have staged it. It arrives at the barrier of
// the exchange when the pieces of the tile before have been read, and the block may end when all have.
// CHECK: scf.for
// CHECK: scf.for
// CHECK: tile.wait_tma_stores
// CHECK-NEXT: tile.named_barrier_arrive %c1_i32 threads 288
// CHECK: tile.named_barrier_sync %c2_i32 threads 160
// CHECK: tile.tma_store {{.*}} adds {{.*}} panel %c0_i32
// CHECK: tile.named_barrier_sync %c3_i32 threads 160
// CHECK: tile.tma_store {{.*}} adds {{.*}} panel %c2_i32
// CHECK: tile.wait_tma_stores
// CHECK: } else {
// CHECK: tile.set_registers increase 240
// The first tile's scores are computed before the loop. In the loop, gradients of scores start, and numbers of rows
// are read.
// CHECK: %[[FRONT:.*]] = scf.if
// CHECK: tile.mbarrier_wait %[[QFULL:.*]][
// CHECK: tile.start_mma
// CHECK-NEXT: tile.wait_mmas 0
// CHECK: scf.for %[[NUMBER:[^ ]*]] = {{.*}} iter_args({{.*}}, %[[S:[^ ]*]] = %[[FRONT]])
// CHECK: %[[TURN:.*]] = arith.remui %[[NUMBER]], %c2_i32
// CHECK-NEXT: %[[EXCHANGE:.*]] = tile.ring_stage %[[EXCHANGES]][%[[TURN]]]
// CHECK: %[[DP:.*]] = tile.start_mma
// CHECK: tile.load_columns {{.*}} i32
// CHECK: tile.load_columns {{.*}} f32
// CHECK: tile.mask %[[S]]
// CHECK: math.exp2
// CHECK: tile.load_columns {{.*}} f32
// CHECK: %[[DV:.*]] = tile.start_mma
// CHECK: tile.wait_mmas 1 of %[[DP]]
// Both warpgroups have written their tokens, and the previous piece has left its memory, before any MMA reads all of
// them.
// CHECK: tile.stage {{.*}} into %[[EXCHANGE]]
// The next tile's scores start meanwhile.
// CHECK-NEXT: tile.wait_mmas 0 of %[[DV]]
// CHECK: tile.mbarrier_wait %[[QFULL]][
// CHECK: %[[NEXT:.*]] = tile.start_mma
// CHECK-NEXT: tile.fence_async
// CHECK-NEXT: tile.named_barrier_sync %c1_i32 threads 288
// CHECK: %[[DQ:.*]] = tile.start_mma %[[EXCHANGE]], {{.*}} from {{.*}} -> <[query 16, feature 64], f32, acc>
// CHECK: %[[DK:.*]] = tile.start_mma
// CHECK: %[[ENDED:.*]]:2 = tile.wait_mmas 1 of %[[DQ]], %[[NEXT]]
// The warpgroup stages half of the features, and goes on. The exchange tile stays until all warps have synced again.
// CHECK: %[[PIECE:.*]] = tile.overlay %[[SUMS]] {{.*}} -> <query 64, feature 64, f32, swizzled>
// CHECK-NEXT: tile.stage {{.*}} into %[[PIECE]]
// CHECK-NEXT: tile.fence_async
// CHECK-NEXT: %[[WHOLE:.*]] = arith.addi {{.*}}, %c2_i32
// CHECK-NEXT: tile.named_barrier_arrive %[[WHOLE]] threads 160
// CHECK-NOT: tile.tma_store
// CHECK: tile.wait_mmas 0 of %[[DK]]
// CHECK: scf.yield {{.*}} %[[ENDED]]#1 :
// CHECK-NOT: tile.wait_tma_stores
// CHECK-COUNT-4: tile.store
// CHECK-NOT: tile.wait_tma_stores
// CHECK: func.func @half_sum(

!q64 = tensor<?x8x64xbf16>
!kv64 = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @long(%q: !q64 {attn.name = "q"}, %kv: !kv64 {attn.name = "kv"}) -> !q64 attributes {attn.backward} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !q64, !kv64 -> !q64
  return %o : !q64
}

// Each warpgroup has 64 rows of a tile of 128, with all features: 64 of the columns of an exchange tile. The sum of values
// starts in front of the barrier. Positions are checked by lanes that read different rows.
// Warp 3 stores the rows of each.
// LONG-LABEL: func.func @long_tokens128_kv(
// LONG: %[[SUMS:.*]] = tile.alloc {{.*}} : !tile.shared<query 128, feature 64, f32, swizzled>
// LONG: %[[TWO:.*]] = tile.alloc {{.*}} : !tile.ring<2, <key 128, query 128, bf16, swizzled>>
// LONG: tile.named_barrier_sync %c2_i32 threads 160
// LONG: tile.tma_store {{.*}} adds to %{{[^ ]*}} from %{{[^ ]*}} head %{{[^ ]*}} : <query 64, feature 64, f32, swizzled>
// LONG: tile.named_barrier_sync %c3_i32 threads 160
// LONG-NEXT: tile.overlay %[[SUMS]] at %c64_i32
// LONG: tile.tma_store {{.*}} adds
// LONG: %[[EXCHANGE:.*]] = tile.ring_stage %[[TWO]][
// LONG: tile.any_line
// LONG: tile.wait_mmas 0
// LONG: tile.stage {{.*}} into %[[EXCHANGE]]
// LONG: tile.start_mma {{.*}} : !tile.fragment<[key 16, query 128], bf16, lhs>
// LONG: tile.named_barrier_sync %c1_i32 threads 288
// LONG: %[[MINE:.*]] = tile.overlay %[[EXCHANGE]] {{.*}} -> <key 128, query 64, bf16, swizzled>
// LONG: tile.start_mma %[[MINE]], {{.*}} -> <[query 16, feature 64], f32, acc>
// LONG: %[[PIECE:.*]] = tile.overlay %[[SUMS]] {{.*}} -> <query 64, feature 64, f32, swizzled>
// LONG: tile.stage {{.*}} into %[[PIECE]]
// LONG: tile.named_barrier_arrive %{{.*}} threads 160
// LONG: tile.wait_mmas 0
