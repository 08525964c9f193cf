// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s --check-prefix=MACHINE

// TMA stores of results through shared memory, as they print and as one lane's code.

!queries = !tile.shared<query 128, feature 128, bf16, boxes 64, swizzled>
!rows = !tile.shared<query 64, feature 96, bf16, swizzled>
!acc = !tile.fragment<[query 16, feature 96], f32, acc>

gpu.module @kernels {
  // The second warpgroup's box begins after 64 lines of 256 bytes.
  // CHECK-LABEL: @send
  // CHECK: %[[TILE:.*]] = tile.overlay %{{.*}} at %{{.*}} : <query 128, feature 128, bf16, boxes 64, swizzled> -> <query 64, feature 96, bf16, swizzled>
  // CHECK: tile.stage %{{.*}} into %[[TILE]] at %{{.*}} : <[query 16, feature 96], f32, acc> ->
  // CHECK: tile.tma_store %[[TILE]] to %{{.*}}, %{{.*}} from %{{.*}} head %{{.*}} :
  // CHECK: tile.wait_tma_stores
  // MACHINE-LABEL: @send
  // MACHINE-SAME: (%[[MAP0:[^:]*]]: !llvm.ptr, %[[MAP1:[^:]*]]: !llvm.ptr, %[[SLOT:[^:]*]]: i32, %[[HEAD:[^:]*]]: i32, %[[LINE:[^:]*]]: i32
  // MACHINE: %[[BOX:.*]] = arith.muli %[[LINE]], %c256_i32
  // MACHINE: %[[TILE:.*]] = llvm.getelementptr %{{.*}}[%[[BOX]]]
  // Six blocks of 16 columns: four in the panel of 128 bytes, whose lines are 128 apart, two in the panel of
  // 64 after it. Neighbours differ by an exclusive or.
  // MACHINE: arith.muli %{{.*}}, %c128_i32
  // MACHINE-COUNT-4: nvvm.convert.f32x2.to.bf16x2
  // MACHINE: nvvm.stmatrix %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {eltType
  // MACHINE: arith.xori %{{.*}}, %c32_i32
  // MACHINE: nvvm.stmatrix
  // MACHINE: arith.xori %{{.*}}, %c64_i32
  // MACHINE: nvvm.stmatrix
  // MACHINE: arith.xori %{{.*}}, %c96_i32
  // MACHINE: nvvm.stmatrix
  // MACHINE: llvm.getelementptr %{{.*}}[8192]
  // MACHINE: nvvm.stmatrix
  // MACHINE: nvvm.stmatrix
  // MACHINE-NOT: nvvm.stmatrix
  // One lane, a copy per width of panel, one group.
  // MACHINE: scf.if
  // MACHINE: nvvm.cp.async.bulk.tensor.global.shared.cta %[[MAP0]], %[[TILE]], box[%c0_i32, %[[SLOT]], %c0_i32, %[[HEAD]]]
  // MACHINE: %[[REST:.*]] = llvm.getelementptr %[[TILE]][8192]
  // MACHINE: nvvm.cp.async.bulk.tensor.global.shared.cta %[[MAP1]], %[[REST]], box[%c0_i32, %[[SLOT]], %c2_i32, %[[HEAD]]]
  // MACHINE: nvvm.cp.async.bulk.commit.group
  // MACHINE: nvvm.cp.async.bulk.wait_group 0 {read}
  func.func @send(%m0: !tile.tensor_map<4>, %m1: !tile.tensor_map<4>, %slot: i32, %head: i32, %line: i32, %o: !acc) {
    %queries = tile.alloc {offset = 0 : i64} : !queries
    %tile = tile.overlay %queries at %line : !queries -> !rows
    tile.stage %o into %tile at %slot : !acc -> !rows
    tile.fence_async
    tile.tma_store %tile to %m0, %m1 from %slot head %head : !rows -> !tile.tensor_map<4>, !tile.tensor_map<4>
    tile.wait_tma_stores
    return
  }

  // Four lines of 128 bytes at a time, then eight of 64, as many as there are.
  // CHECK-LABEL: @scatter
  // CHECK: tile.scatter %{{.*}} from %{{.*}} count 16 end %{{.*}} to %{{.*}} {
  // CHECK: } : <query 64, feature 96, bf16, swizzled> -> <bf16>
  // MACHINE-LABEL: @scatter
  // MACHINE: %[[END:.*]] = arith.minsi %{{.*}}, %c16_i32
  // MACHINE: scf.for %{{.*}} = %{{.*}} to %[[END]] step %c4_i32
  // MACHINE: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
  // MACHINE: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  // MACHINE: scf.for %{{.*}} = %{{.*}} to %[[END]] step %c8_i32
  // MACHINE: llvm.load
  // MACHINE: llvm.store
  func.func @scatter(%out: !tile.buffer<bf16>, %line: i32, %end: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !rows
    tile.scatter %tile from %line count 16 end %end to %out (%row: i32) {
      %wide = arith.extsi %row : i32 to i64
      tile.yield %wide : i64
    } : !rows -> !tile.buffer<bf16>
    return
  }
}
