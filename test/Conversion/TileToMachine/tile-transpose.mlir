// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s
// RUN: attn-opt %s --tile-to-machine --cse --machine-to-llvm | FileCheck %s --check-prefix=LLVM

// Fragments with their axes exchanged, and reductions along rows, as one lane's code.
gpu.module @kernels {
  // A left operand's registers are 8x8 matrices: lower left and upper right change places, and each is transposed.
  // CHECK-LABEL: func.func @halves(
  // CHECK: %[[M0:.*]] = tile.move_matrix %{{.*}}
  // CHECK-NEXT: %[[M1:.*]] = tile.move_matrix
  // CHECK-NEXT: %[[M2:.*]] = tile.move_matrix
  // CHECK-NEXT: %[[M3:.*]] = tile.move_matrix
  // CHECK-NOT: nvvm.shfl.sync
  // CHECK-NOT: tile.move_matrix
  // LLVM-LABEL: llvm.func @halves
  // LLVM-COUNT-4: tile.move_matrix
  func.func @halves(%q: !tile.shared<query 16, key 16, bf16, swizzled>, %i: i32, %out: !tile.buffer<f32>)
      attributes {tile.threads = 32 : i32} {
    %x = tile.load %q at %i : <query 16, key 16, bf16, swizzled> -> <[query 16, key 16], bf16, lhs>
    %0 = tile.convert %x : <[query 16, key 16], bf16, lhs> -> <[key 16, query 16], bf16, lhs>
    return
  }

  // Elements of 32 bits are exchanged one by one: each lane gives the one that the other needs, so no element is sent
  // twice.
  // CHECK-LABEL: func.func @words(
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %{{.*}}, %c0_i32
  // CHECK-COUNT-8: nvvm.shfl.sync  idx
  // CHECK-NOT: nvvm.shfl.sync
  func.func @words(%x: f32) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[query 16, key 16], f32, acc>
    %0 = tile.convert %s : <[query 16, key 16], f32, acc> -> <[key 16, query 16], f32, acc>
    return
  }

  // A column is spread over the eight quads, of which a lane holds two rows here; a share is one lane's part.
  // CHECK-LABEL: func.func @columns(
  // CHECK: %[[SUM:.*]] = arith.addf %{{.*}}, %{{.*}} : f32
  // CHECK: %[[FOUR:.*]] = nvvm.shfl.sync  bfly %{{.*}}, %[[SUM]], %c4_i32
  // CHECK: %[[S4:.*]] = arith.addf %[[SUM]], %[[FOUR]]
  // CHECK: nvvm.shfl.sync  bfly %{{.*}}, %[[S4]], %c8_i32
  // CHECK: nvvm.shfl.sync  bfly %{{.*}}, %{{.*}}, %c16_i32
  // CHECK-COUNT-3: nvvm.shfl.sync  bfly
  // Shares, then their sums.
  // CHECK: arith.addf
  // CHECK-COUNT-6: nvvm.shfl.sync  bfly
  // CHECK-NOT: nvvm.shfl.sync
  // One lane of those that hold a column writes it: the first quad's.
  // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0_i32
  // CHECK: scf.if
  func.func @columns(%x: f32, %y: f32, %n: i32, %out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %s = tile.splat %x : f32 -> <[query 16, key 8], f32, acc>
    %t = tile.splat %y : f32 -> <[query 16, key 8], f32, acc>
    %sum = tile.reduce add %s : <[query 16, key 8], f32, acc> -> <[key 8], f32, col>
    %shares = tile.reduce add %t : <[query 16, key 8], f32, acc> -> <[key 8], f32, col, partial>
    %whole = tile.complete %shares : <[key 8], f32, col, partial> -> <[key 8], f32, col>
    tile.store %sum to %out lines %n (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : <[key 8], f32, col> -> <f32>
    return
  }
}
