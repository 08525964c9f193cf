// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s --check-prefix=MACHINE

// TMA loads: as they print, and as one lane's code.

!whole = !tile.shared<key 128, feature 96, bf16, swizzled>
!paged = !tile.shared<key 64, feature 128, bf16, boxes 16, swizzled>

#wide = #tile.tensor_map<"k.128x64" of "kv.k", bf16, extents = [64, 1, 1, 8], dims = [[], ["kv.tokens"], [], []], strides = [2, 1536, 128, 192], box = [64, 128, 1, 1], swizzle = 128>
#rest = #tile.tensor_map<"k.128x32" of "kv.k", bf16, extents = [32, 1, 3, 8], dims = [[], ["kv.tokens"], [], []], strides = [2, 1536, 64, 192], box = [32, 128, 1, 1], swizzle = 64>

gpu.module @kernels {
  // Lines of 192 bytes are a panel of 128 and one of 64: a map each. The whole tile is one box, one copy per
  // map.
  // CHECK-LABEL: @whole
  // CHECK-SAME: #tile.tensor_map<"k.128x64" of "kv.k", bf16, extents = [64, 1, 1, 8], dims = {{\[\[}}], ["kv.tokens"],
  // CHECK: tile.tma_load %{{.*}}, %{{.*}} from %{{.*}} head %{{.*}} lines 128 into %{{.*}} on %{{.*}}[%{{.*}}] :
  // MACHINE-LABEL: @whole
  // MACHINE-SAME: (%[[MAP0:[^:]*]]: !llvm.ptr, %[[MAP1:[^:]*]]: !llvm.ptr, %[[SLOT:[^:]*]]: i32, %[[HEAD:[^:]*]]: i32
  // MACHINE: scf.if
  // MACHINE: nvvm.mbarrier.arrive.expect_tx %[[BAR:.*]], %c24576_i32
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP0]], %[[BAR]], box[%c0_i32, %[[SLOT]], %c0_i32, %[[HEAD]]]
  // The second panel starts after 128 lines of 128 bytes; its features from 64 on are panel 2 of 32.
  // MACHINE: llvm.getelementptr %{{.*}}[16384]
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP1]], %[[BAR]], box[%c0_i32, %[[SLOT]], %c2_i32, %[[HEAD]]]
  func.func @whole(%m0: !tile.tensor_map<4>, %m1: !tile.tensor_map<4>, %slot: i32, %head: i32, %i: i32) attributes {tile.tensor_maps = [#wide, #rest]} {
    %tile = tile.alloc {offset = 0 : i64} : !whole
    %full = tile.alloc {offset = 24576 : i64} : !tile.barriers<2>
    tile.tma_load %m0, %m1 from %slot head %head lines 128 into %tile on %full[%i] : !tile.tensor_map<4>, !tile.tensor_map<4> -> !whole, !tile.barriers<2>
    return
  }

  // Four pages of 16 lines: lane 0 takes the slots from the lanes that looked them up. If the tile is cut
  // into the same boxes, both panels of a page come in one copy, to every 4096 bytes.
  // CHECK-LABEL: @pages
  // CHECK: tile.tma_load {{.*}} lines 16 {{.*}} -> <key 64, feature 128, bf16, boxes 16, swizzled>
  // MACHINE-LABEL: @pages
  // MACHINE-SAME: (%{{[^:]*}}: !llvm.ptr, %[[SLOT:[^:]*]]: i32
  // MACHINE: %[[S0:.*]] = nvvm.shfl.sync {{.*}}, %[[SLOT]], %c0_i32
  // MACHINE: %[[S1:.*]] = nvvm.shfl.sync {{.*}}, %[[SLOT]], %c1_i32
  // MACHINE: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c16384_i32
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c0_i32, %[[S0]], %c0_i32, %{{.*}}]
  // MACHINE: llvm.getelementptr %{{.*}}[4096]
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c0_i32, %[[S1]], %c0_i32, %{{.*}}]
  // MACHINE: scf.if
  // MACHINE-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global
  // MACHINE-NOT: nvvm.cp.async.bulk
  // CHECK: tile.clear %{{.*}} from %{{.*}} :
  // MACHINE: scf.for
  // MACHINE: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
  func.func @pages(%m: !tile.tensor_map<4>, %slot: i32, %head: i32, %i: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !paged
    %full = tile.alloc {offset = 16384 : i64} : !tile.barriers<2>
    tile.tma_load %m from %slot head %head lines 16 into %tile on %full[%i] : !tile.tensor_map<4> -> !paged, !tile.barriers<2>
    tile.clear %tile from %i : !paged
    return
  }

  // The last panels of lines of three: a copy from panel 1 on. The boxes of the next load come to the L2 cache.
  // CHECK-LABEL: @next
  // CHECK: tile.tma_load %{{.*}} from %{{.*}} next %{{.*}} head %{{.*}} lines 64 panel 1 into
  // MACHINE-LABEL: @next
  // MACHINE-SAME: (%[[MAP:[^:]*]]: !llvm.ptr, %[[SLOT:[^:]*]]: i32, %[[NEXT:[^:]*]]: i32, %[[HEAD:[^:]*]]: i32
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c0_i32, %[[SLOT]], %c1_i32, %[[HEAD]]]
  // MACHINE: nvvm.cp.async.bulk.tensor.prefetch %[[MAP]], box[%c0_i32, %[[NEXT]], %c1_i32, %[[HEAD]]]
  func.func @next(%m: !tile.tensor_map<4>, %slot: i32, %next: i32, %head: i32, %i: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !tile.shared<key 64, feature 128, bf16, swizzled>
    %full = tile.alloc {offset = 16384 : i64} : !tile.barriers<2>
    tile.tma_load %m from %slot next %next head %head lines 64 panel 1 into %tile on %full[%i] : !tile.tensor_map<4> -> <key 64, feature 128, bf16, swizzled>, !tile.barriers<2>
    return
  }

  // Operations that order a launch and the previous one, and four elements in one request.
  // CHECK-LABEL: @overlap
  // CHECK: tile.start_next
  // CHECK: tile.wait_previous
  // CHECK: tile.read written %{{.*}}[%{{.*}}] : <f32> -> f32
  // CHECK: tile.read_adjacent %{{.*}}[%{{.*}}] : <f32> -> f32, f32, f32, f32
  // CHECK: tile.write_adjacent %{{.*}}, %{{.*}} to %{{.*}}[%{{.*}}] : f32, f32 -> <bf16>
  // MACHINE-LABEL: @overlap
  // MACHINE: nvvm.griddepcontrol launch_dependents
  // MACHINE: nvvm.griddepcontrol wait
  // Memory that the previous launch wrote is not read through the constant cache.
  // MACHINE: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> f32
  // MACHINE: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
  // MACHINE: llvm.store %{{.*}} {alignment = 4 : i64} : vector<2xbf16>, !llvm.ptr<1>
  func.func @overlap(%parts: !tile.buffer<f32>, %o: !tile.buffer<bf16>, %i: i64) {
    tile.start_next
    tile.wait_previous
    %lse = tile.read written %parts[%i] : !tile.buffer<f32> -> f32
    %0, %1, %2, %3 = tile.read_adjacent %parts[%i] : !tile.buffer<f32> -> f32, f32, f32, f32
    tile.write_adjacent %0, %lse to %o[%i] : f32, f32 -> !tile.buffer<bf16>
    return
  }
}
