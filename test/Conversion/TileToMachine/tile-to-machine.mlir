// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

!queries = !tile.shared<query 16, feature 80, bf16, swizzled>
!keys = !tile.shared<key 16, feature 80, bf16, swizzled>
!scores = !tile.fragment<[query 16, key 16], f32, acc>
!rows = !tile.fragment<[query 16], f32, row>
// The block's dynamic shared memory is one extern array.
// CHECK: llvm.mlir.global external @attn_shared() {{.*}}addr_space = 3 : i32{{.*}} : !llvm.array<0 x i8>
gpu.module @kernels {
  // 16 lines of 160 bytes: a panel of 128 bytes, four lines per step, and one of 32, all 16 lines in one. A lane looks
  // up one line; the page table is read once for both panels.
  // CHECK-LABEL: func.func @gather(
  // CHECK-SAME: %[[B:.*]]: !llvm.ptr<1>, %[[T:.*]]: !llvm.ptr<1>, %[[M:.*]]: i32, %[[N:.*]]: i32, %[[Z:.*]]: i64)
  // CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x
  // CHECK: %[[LANE:.*]] = arith.andi %[[THREAD]], %c31_i32
  // CHECK: %[[WARPID:.*]] = arith.shrui %[[THREAD]], %c5_i32
  // CHECK: %[[WARP:.*]] = nvvm.shfl.sync  idx %{{.*}}, %[[WARPID]], %c0_i32
  // CHECK: %[[SHARED:.*]] = llvm.mlir.addressof @attn_shared
  // CHECK: %[[TILES:.*]] = llvm.getelementptr %[[SHARED]][2048]
  // CHECK: %[[OWN:.*]] = arith.muli %[[WARP]], %c2560_i32
  // CHECK: %[[TILE:.*]] = llvm.getelementptr %[[TILES]][%[[OWN]]]
  // CHECK: %[[LAST:.*]] = arith.addi %[[N]], %c-1_i32
  // CHECK: arith.minsi %{{.*}}, %[[LAST]]
  // CHECK: %[[SLOT:.*]] = llvm.load %{{.*}} invariant {alignment = 4 : i64} : !llvm.ptr<1> -> i32
  // Lane l copies chunk l % 8 of line l / 8, to chunk ^ (line % 8).
  // CHECK: %[[LINE:.*]] = arith.shrui %[[LANE]], %c3_i32
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %[[SLOT]], %[[LINE]]
  // CHECK: %[[CHUNK:.*]] = arith.andi %[[LANE]], %c7_i32
  // The part that lines share is added to the source, and then each line's own part, as few blocks share the
  // registers.
  // CHECK: %[[COLUMN:.*]] = arith.addi %[[Z]], %{{.*}} : i64
  // CHECK: %[[AWAY:.*]] = arith.muli %{{.*}}, %c640_i64
  // CHECK: %[[FROM:.*]] = llvm.getelementptr %[[B]][%[[COLUMN]]]
  // CHECK: %[[FIRST:.*]] = llvm.getelementptr %[[FROM]][%[[AWAY]]]
  // CHECK: %[[S:.*]] = arith.andi %[[LINE]], %c7_i32
  // CHECK: %[[ROW:.*]] = arith.muli %[[LINE]], %c128_i32
  // CHECK: %[[X:.*]] = arith.xori %[[CHUNK]], %[[S]]
  // CHECK: %[[COL:.*]] = arith.muli %[[X]], %c16_i32
  // CHECK: %[[BYTES:.*]] = arith.addi %[[ROW]], %[[COL]]
  // CHECK: %[[TO:.*]] = llvm.getelementptr %[[TILE]][%[[BYTES]]]
  // Lines past the end are filled with zeros: nothing is read.
  // CHECK: %[[COUNT:.*]] = arith.subi %[[N]], %[[M]]
  // CHECK: %[[LEFT:.*]] = arith.subi %[[COUNT]], %[[LINE]]
  // CHECK: %[[EXISTS:.*]] = arith.cmpi sgt, %[[LEFT]], %c0_i32
  // CHECK: %[[SIZE:.*]] = arith.select %[[EXISTS]], %c16_i32, %c0_i32
  // CHECK: nvvm.cp.async.shared.global %[[TO]], %[[FIRST]], 16, cache =  cg, %[[SIZE]]
  // CHECK: nvvm.cp.async.shared.global
  // Eight lines further on the swizzle is the same.
  // CHECK: %[[NEXT:.*]] = llvm.getelementptr %[[TO]][1024]
  // CHECK: arith.cmpi sgt, %[[LEFT]], %c8_i32
  // CHECK: nvvm.cp.async.shared.global %[[NEXT]],
  // CHECK: nvvm.cp.async.shared.global
  // The second panel starts after the first, 16 lines of 128 bytes; its swizzle changes every fourth line.
  // CHECK: %[[HALF:.*]] = arith.shrui %[[LANE]], %c1_i32
  // CHECK: arith.addi %{{.*}}, %c64_i64
  // CHECK: %[[FOURTH:.*]] = arith.shrui %[[HALF]], %c2_i32
  // CHECK: arith.andi %[[FOURTH]], %c1_i32
  // CHECK: arith.muli %[[HALF]], %c32_i32
  // CHECK: llvm.getelementptr %{{.*}}[2048]
  // CHECK: nvvm.cp.async.shared.global
  // CHECK-NOT: nvvm.cp.async.shared.global
  // CHECK: nvvm.cp.async.commit.group
  // CHECK-NEXT: nvvm.cp.async.wait.group 1
  // CHECK-NEXT: nvvm.bar.warp.sync
  // CHECK-NEXT: nvvm.barrier
  func.func @gather(%b: !tile.buffer<bf16>, %t: !tile.buffer<i32>, %m: i32, %n: i32, %z: i64)
      attributes {tile.schedule = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 3, split_keys = true, query_in_registers = false>} {
    %k = tile.alloc {per_warp, offset = 2048 : i64} : !keys
    %slots = tile.lookup warp %m to %n lines 16 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %slot = tile.read %t[%w] : <i32> -> i32
      tile.yield %slot : i32
    }
    tile.gather warp %m to %n at %slots from %b origins %z strides [640] into %k : !tile.buffer<bf16> -> !keys
    tile.commit
    tile.wait 1
    tile.sync warp
    tile.sync block
    return
  }
  // Queries: five 16x16 blocks by ldmatrix. Scores: per block one ldmatrix feeds two products.
  // CHECK-LABEL: func.func @mmas(
  // CHECK-COUNT-5: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<row>, num = 4 : i32
  // CHECK: %[[K:.*]] = nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<row>, num = 4 : i32
  // CHECK: %[[K0:.*]] = llvm.extractvalue %[[K]][0]
  // CHECK: %[[K1:.*]] = llvm.extractvalue %[[K]][1]
  // CHECK: nvvm.mma.sync A[{{.*}}]  B[%[[K0]], %[[K1]]]  C[{{.*}}] {{.*}}m = 16, n = 8, k = 16
  // CHECK-COUNT-9: nvvm.mma.sync
  // The maximum of a row: over this lane's columns, then over the four lanes of the quad.
  // CHECK: nvvm.shfl.sync  bfly %{{.*}}, %{{.*}}, %c1_i32
  // CHECK: nvvm.shfl.sync  bfly %{{.*}}, %{{.*}}, %c2_i32
  // Probabilities become the left operand in place: no exchange. Values are transposed on the way.
  // CHECK: nvvm.convert.f32x2.to.bf16x2
  // CHECK-NOT: nvvm.shfl
  // CHECK: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<col>, num = 4 : i32
  // CHECK-COUNT-10: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  // 16-bit results: neighbouring lanes trade halves, so that a quad writes whole sectors.
  // CHECK: nvvm.shfl.sync  bfly %{{.*}}, %{{.*}}, %c1_i32
  // CHECK: scf.if
  // CHECK: llvm.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
  func.func @mmas(%q: !queries, %k: !keys, %i: i32, %x: f32, %b: !tile.buffer<bf16>) {
    %lhs = tile.load %q at %i : !queries -> !tile.fragment<[query 16, feature 80], bf16, lhs>
    %zero = tile.splat %x : f32 -> !scores
    %s = tile.mma %lhs, %k, %zero : !tile.fragment<[query 16, feature 80], bf16, lhs>, !keys, !scores -> !scores
    %m = tile.reduce max %s : !scores -> !rows
    %p = tile.cast %s : !scores -> !tile.fragment<[query 16, key 16], bf16, lhs>
    %o = tile.splat %x : f32 -> !tile.fragment<[query 16, feature 80], f32, acc>
    %r = tile.mma %p, %k, %o : !tile.fragment<[query 16, key 16], bf16, lhs>, !keys, !tile.fragment<[query 16, feature 80], f32, acc> -> !tile.fragment<[query 16, feature 80], f32, acc>
    tile.store %r to %b lines %i (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !tile.fragment<[query 16, feature 80], f32, acc> -> <bf16>
    return
  }
  // Four lanes exchange quarters of four blocks of columns in e4m3, and store eight bytes each; of the last two blocks
  // they store words.
  // CHECK-LABEL: func.func @store_e4m3(
  // CHECK-COUNT-4: nvvm.convert.f32x2.to.f8x2 {{.*}} {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : i16(f8E4M3FN)
  // CHECK-COUNT-2: nvvm.shfl.sync bfly
  // CHECK-COUNT-2: nvvm.convert.f32x2.to.f8x2
  // CHECK: nvvm.shfl.sync bfly
  // CHECK-NOT: nvvm.shfl.sync bfly
  // CHECK: llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xi32>
  // CHECK: llvm.store %{{.*}} {alignment = 4 : i64} : i32
  func.func @store_e4m3(%x: f32, %b: !tile.buffer<f8E4M3FN>, %i: i32) {
    %o = tile.splat %x : f32 -> !tile.fragment<[query 16, feature 48], f32, acc>
    tile.store %o to %b lines %i (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !tile.fragment<[query 16, feature 48], f32, acc> -> <f8E4M3FN>
    return
  }
  // One lane arrives if the condition holds, without a sync of the warp before. One thread sets mbarriers up, and
  // publishes all of them to the async proxy at once.
  // CHECK-LABEL: func.func @set_up(
  // CHECK: scf.if
  // CHECK: nvvm.mbarrier.init
  // CHECK: nvvm.mbarrier.init
  // CHECK-NOT: nvvm.fence
  // CHECK: scf.if
  // CHECK-NEXT: nvvm.fence.mbarrier.init
  // CHECK-NEXT: }
  // CHECK-NEXT: nvvm.barrier
  func.func @set_up() {
    %barriers = tile.alloc {offset = 0 : i64} : !tile.barriers<2>
    tile.init_barriers %barriers counts [4] : !tile.barriers<2>
    tile.publish_barriers
    tile.sync block
    return
  }
  // CHECK-LABEL: func.func @arrive(
  // CHECK-SAME: %{{.*}}: i32, %[[C:.*]]: i1
  // CHECK-NOT: nvvm.bar.warp.sync
  // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0_i32
  // CHECK: %[[BOTH:.*]] = arith.andi %[[FIRST]], %[[C]] : i1
  // CHECK: scf.if %[[BOTH]]
  // CHECK-NEXT: nvvm.mbarrier.arrive
  func.func @arrive(%i: i32, %c: i1) {
    %barriers = tile.alloc {offset = 0 : i64} : !tile.barriers<2>
    tile.arrive %barriers[%i] if %c : !tile.barriers<2>
    return
  }
  // An operand without values is registers without values, packed like others.
  // CHECK-LABEL: func.func @undefined(
  // CHECK: %[[NONE:.*]] = llvm.mlir.poison : i32
  // CHECK: nvvm.mma.sync A[%[[NONE]], %[[NONE]], %[[NONE]], %[[NONE]]]
  func.func @undefined(%k: !keys, %x: f32) {
    %0 = tile.undefined : !tile.fragment<[query 16, key 16], bf16, lhs>
    %1 = tile.splat %x : f32 -> !tile.fragment<[query 16, feature 80], f32, acc>
    %2 = tile.mma %0, %k, %1 : !tile.fragment<[query 16, key 16], bf16, lhs>, !keys, !tile.fragment<[query 16, feature 80], f32, acc> -> !tile.fragment<[query 16, feature 80], f32, acc>
    return
  }
  // tanh x = 1 - 2 / (2^(2x log2 e) + 1), exp x = 2^(x log2 e).
  // CHECK-LABEL: func.func @scalars(
  // CHECK: %[[C:.*]] = arith.constant 2.885390e+00 : f32
  // CHECK: %[[Y:.*]] = arith.mulf %{{.*}}, %[[C]]
  // CHECK: %[[E:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[Y]])
  // CHECK: %[[P:.*]] = arith.addf %[[E]],
  // CHECK: %[[I:.*]] = llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"(%[[P]])
  // CHECK: %[[D:.*]] = arith.mulf %[[I]],
  // CHECK: %[[TANH:.*]] = arith.addf %[[D]], %{{.*}}
  // CHECK: %[[Z:.*]] = arith.mulf %[[TANH]],
  // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[Z]])
  // The hardware's instruction is used if `fastmath` allows it.
  // CHECK: llvm.intr.tanh(%{{.*}}) {fastmathFlags = #llvm.fastmath<afn>}
  func.func @scalars(%x: f32) -> f32 {
    %0 = math.tanh %x : f32
    %1 = math.exp %0 : f32
    %2 = math.tanh %1 fastmath<afn> : f32
    return %2 : f32
  }
}
