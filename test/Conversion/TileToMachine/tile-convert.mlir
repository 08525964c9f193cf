// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

// Fragments in another layout, as one lane's code, with g = lane / 4 and q = lane % 4.
gpu.module @kernels {
  // One row in eight lies in a quad: column 2q + i comes from quad 2q + i.
  // CHECK-LABEL: func.func @row_to_col(
  // CHECK-SAME: %[[A:[^:]*]]: f32, %[[B:[^:]*]]: f32,
  // CHECK: %[[WORD:.*]] = arith.bitcast %[[A]] : f32 to i32
  // CHECK: %[[EVEN:.*]] = arith.muli %{{.*}}, %c8_i32
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %[[WORD]], %[[EVEN]]
  // CHECK: %[[ODD:.*]] = arith.addi %[[EVEN]], %c4_i32
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %[[WORD]], %[[ODD]]
  // CHECK-COUNT-2: nvvm.shfl.sync
  // CHECK-NOT: nvvm.shfl.sync
  // CHECK: scf.if
  func.func @row_to_col(%x: !tile.fragment<[query 16], f32, row>, %n: i32, %out: !tile.buffer<f32>) {
    %0 = tile.convert %x : <[query 16], f32, row> -> <[query 16], f32, col>
    tile.store %0 to %out lines %n (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : <[query 16], f32, col> -> <f32>
    return
  }

  // Odd quads give odd columns. Halves travel as words.
  // CHECK-LABEL: func.func @col_to_row(
  // CHECK-SAME: %[[A:[^:]*]]: f16, %[[B:[^:]*]]: f16, %{{[^:]*}}: f16, %{{[^:]*}}: f16)
  // CHECK: %[[BITS:.*]] = arith.bitcast %[[A]] : f16 to i16
  // CHECK: %[[WORD:.*]] = arith.extui %[[BITS]] : i16 to i32
  // CHECK: %[[SENT:.*]] = arith.select %{{.*}}, %{{.*}}, %[[WORD]] : i32
  // CHECK: %[[GOT:.*]] = nvvm.shfl.sync  idx %{{.*}}, %[[SENT]],
  // CHECK: nvvm.shfl.sync
  // CHECK-NOT: nvvm.shfl.sync
  func.func @col_to_row(%x: !tile.fragment<[key 16], f16, col>) {
    %0 = tile.convert %x : <[key 16], f16, col> -> <[key 16], f16, row>
    return
  }

  // Neighbouring columns are packed, nothing moves.
  // CHECK-LABEL: func.func @pack(
  // CHECK-COUNT-4: llvm.bitcast {{.*}} : vector<2xbf16> to i32
  // CHECK-NOT: nvvm.shfl.sync
  // CHECK: nvvm.mma.sync
  func.func @pack(%x: !tile.fragment<[query 16, key 16], bf16, acc>, %v: !tile.shared<key 16, feature 16, bf16, swizzled>,
                  %acc: !tile.fragment<[query 16, feature 16], f32, acc>) {
    %0 = tile.convert %x : <[query 16, key 16], bf16, acc> -> <[query 16, key 16], bf16, lhs>
    %1 = tile.mma %0, %v, %acc : !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.shared<key 16, feature 16, bf16, swizzled>, <[query 16, feature 16], f32, acc> -> <[query 16, feature 16], f32, acc>
    return
  }

  // Elements of 32 bits change lanes within the quad, one exchange for each.
  // CHECK-LABEL: func.func @words(
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %{{.*}}, %c0_i32
  // CHECK-COUNT-4: nvvm.shfl.sync
  // CHECK-NOT: nvvm.shfl.sync
  // CHECK: return
  func.func @words(%x: !tile.fragment<[query 16, key 8], f32, acc>) {
    %0 = tile.convert %x : <[query 16, key 8], f32, acc> -> <[query 16, key 8], f32, lhs>
    return
  }

  // A word of bytes has elements for two lanes, so a register of four bytes takes two exchanges; back, one for two
  // elements.
  // CHECK-LABEL: func.func @bytes(
  // CHECK: nvvm.shfl.sync  idx %{{.*}}, %{{.*}}, %c0_i32
  // CHECK-COUNT-16: nvvm.shfl.sync
  // CHECK-NOT: nvvm.shfl.sync
  // CHECK: return
  func.func @bytes(%x: !tile.fragment<[query 16, key 32], i8, acc>) {
    %0 = tile.convert %x : <[query 16, key 32], i8, acc> -> <[query 16, key 32], i8, lhs>
    %1 = tile.convert %0 : <[query 16, key 32], i8, lhs> -> <[query 16, key 32], i8, acc>
    return
  }
}
