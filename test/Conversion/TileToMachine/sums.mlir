// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// Sums that blocks share have the order of lanes: of 32 columns a lane's eight lie together. It stages and reads four
// at once.
gpu.module @kernels {
  // Two halves of 8 lines, two pairs of blocks. One lane adds all by TMA, in the panels from `panel` on.
  // CHECK-LABEL: func.func @add(
  // CHECK-COUNT-4: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<3>
  // CHECK-NOT: llvm.store
  // CHECK: nvvm.cp.async.bulk.tensor.reduce %{{.*}}, %{{.*}}, box[%c0_i32, %[[N:.*]], %[[N]], %[[N]]] {redKind = #nvvm.tma_redux_kind<add>}
  // CHECK: nvvm.cp.async.bulk.commit.group
  func.func @add(%x: f32, %n: i32, %map: !tile.tensor_map<4>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[query 16, feature 32], f32, acc>
    %tile = tile.alloc {offset = 0 : i64} : !tile.shared<query 16, feature 32, f32, swizzled>
    tile.stage %s into %tile at %n : <[query 16, feature 32], f32, acc> -> <query 16, feature 32, f32, swizzled>
    tile.tma_store %tile adds to %map from %n head %n panel %n : <query 16, feature 32, f32, swizzled> -> !tile.tensor_map<4>
    return
  }

  // CHECK-LABEL: func.func @load(
  // CHECK-COUNT-4: llvm.load %{{.*}} invariant {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
  // CHECK-NOT: llvm.load
  func.func @load(%n: i32, %sums: !tile.buffer<f32>, %out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %s = tile.load_sums %sums lines %n stride 32 (%line: i32) {
      tile.yield %line : i32
    } : <f32> -> <[query 16, feature 32], f32, acc>
    tile.store %s to %out lines %n stride 32 (%line: i32) {
      tile.yield %line : i32
    } : <[query 16, feature 32], f32, acc> -> <f32>
    return
  }

  // The lines of both tiles are contracted: the left operand is transposed. The right operand's part from the column
  // on is read, which is another panel or an offset in the only one.
  // CHECK-LABEL: func.func @turned(
  // CHECK-COUNT-2: tile.wgmma 32 bf16 transposed lhs_transposed lhs_descriptor
  // CHECK-NOT: tile.wgmma 32
  func.func @turned(%c: i32) attributes {tile.threads = 128 : i32} {
    %left = tile.alloc {offset = 0 : i64} : !tile.shared<key 32, query 64, bf16, swizzled>
    %right = tile.alloc {offset = 4096 : i64} : !tile.shared<key 32, feature 64, bf16, swizzled>
    %d = tile.start_mma %left, %right from %c : !tile.shared<key 32, query 64, bf16, swizzled>, !tile.shared<key 32, feature 64, bf16, swizzled> -> <[query 16, feature 32], f32, acc>
    %r = tile.wait_mmas 0 of %d : !tile.fragment<[query 16, feature 32], f32, acc> -> !tile.fragment<[query 16, feature 32], f32, acc>
    return
  }
}
