// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s --check-prefix=MACHINE

// Lines of 72 features in tiles of 80: no padding is in memory.

!keys = !tile.shared<key 16, feature 80, bf16, swizzled>
!rows = !tile.shared<query 64, feature 80, bf16, swizzled>

gpu.module @kernels {
  // The panel of 128 bytes is whole. One of the other panel's two chunks exists: lanes of the second read
  // nothing.
  // CHECK-LABEL: @gather
  // CHECK: tile.gather warp {{.*}} strides [576] features [72] into %{{.*}} :
  // MACHINE-LABEL: @gather
  // MACHINE: %[[WHOLE:.*]] = arith.cmpi sgt
  // MACHINE: %[[SIZE:.*]] = arith.select %[[WHOLE]], %c16_i32, %c0_i32
  // MACHINE: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache =  cg, %[[SIZE]]
  // MACHINE: %[[CHUNK:.*]] = arith.andi %{{.*}}, %c1_i32
  // MACHINE: %[[LEFT:.*]] = arith.subi %arg1, %{{.*}}
  // MACHINE: %[[LINE:.*]] = arith.cmpi sgt, %[[LEFT]], %c0_i32
  // MACHINE: %[[FIRST:.*]] = arith.cmpi slt, %[[CHUNK]], %c1_i32
  // MACHINE: %[[BOTH:.*]] = arith.andi %[[LINE]], %[[FIRST]]
  // MACHINE: %[[SIZE:.*]] = arith.select %[[BOTH]], %c16_i32, %c0_i32
  // MACHINE: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache =  cg, %[[SIZE]]
  func.func @gather(%k: !tile.buffer<bf16>, %end: i32, %origin: i64, %slots: i32) {
    %begin = arith.constant 0 : i32
    %tile = tile.alloc {offset = 0 : i64} : !keys
    tile.gather warp %begin to %end at %slots from %k origins %origin strides [576] features [72] into %tile : !tile.buffer<bf16> -> !keys
    return
  }

  // Panels are copied one by one, from their first feature on: features past the 72nd are outside of the
  // tensor. The barrier still counts them.
  // CHECK-LABEL: @fetch
  // CHECK: tile.tma_load {{.*}} {padded} :
  // MACHINE-LABEL: @fetch
  // MACHINE: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c2560_i32
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c0_i32, %[[SLOT:.*]], %c0_i32, %[[HEAD:.*]]]
  // MACHINE: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c64_i32, %[[SLOT]], %c0_i32, %[[HEAD]]]
  func.func @fetch(%m0: !tile.tensor_map<4>, %m1: !tile.tensor_map<4>, %slot: i32, %head: i32, %i: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !keys
    %full = tile.alloc {offset = 2560 : i64} : !tile.barriers<2>
    tile.tma_load %m0, %m1 from %slot head %head lines 16 into %tile on %full[%i] {padded} : !tile.tensor_map<4>, !tile.tensor_map<4> -> !keys, !tile.barriers<2>
    return
  }

  // CHECK-LABEL: @send
  // CHECK: tile.tma_store {{.*}} {padded} :
  // MACHINE-LABEL: @send
  // MACHINE: nvvm.cp.async.bulk.tensor.global.shared.cta {{.*}} box[%c0_i32, %[[SLOT:.*]], %c0_i32, %[[HEAD:.*]]]
  // MACHINE: nvvm.cp.async.bulk.tensor.global.shared.cta {{.*}} box[%c64_i32, %[[SLOT]], %c0_i32, %[[HEAD]]]
  func.func @send(%m0: !tile.tensor_map<4>, %m1: !tile.tensor_map<4>, %slot: i32, %head: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !rows
    tile.tma_store %tile to %m0, %m1 from %slot head %head {padded} : !rows -> !tile.tensor_map<4>, !tile.tensor_map<4>
    tile.wait_tma_stores
    return
  }

  // CHECK-LABEL: @scatter
  // CHECK: } {columns = 72 : i64} :
  // MACHINE-LABEL: @scatter
  // MACHINE: scf.for
  // MACHINE-NOT: scf.if
  // MACHINE: llvm.store
  // MACHINE: scf.for
  // MACHINE: %[[EXISTS:.*]] = arith.cmpi slt, %{{.*}}, %c1_i32
  // MACHINE: scf.if %[[EXISTS]]
  // MACHINE: llvm.store
  func.func @scatter(%out: !tile.buffer<bf16>, %line: i32, %end: i32) {
    %tile = tile.alloc {offset = 0 : i64} : !rows
    tile.scatter %tile from %line count 16 end %end to %out (%row: i32) {
      %wide = arith.extsi %row : i32 to i64
      tile.yield %wide : i64
    } {columns = 72 : i64} : !rows -> !tile.buffer<bf16>
    return
  }
}
