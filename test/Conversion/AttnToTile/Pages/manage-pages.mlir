// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages --canonicalize | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o - | FileCheck %s --check-prefix=PTX

// One launch counts, one releases pages, one takes pages and publishes.
// CHECK-LABEL: func.func @manage_count(
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 1 : i32, role = "count_pages", rows_per_warp = 32 : i32}
// CHECK: scf.for
// CHECK: tile.read_adjacent
// CHECK: %[[LEFT:.*]] = arith.divui %{{.*}}, %c32_i32
// CHECK: %[[RIGHT:.*]] = arith.divui %{{.*}}, %c64_i32
// CHECK: tile.scan %{{.*}}, %{{.*}}, %{{.*}} in
// CHECK: tile.write_adjacent

// Pages go to the ring, and -1 to the columns that held them.
// CHECK-LABEL: func.func @manage_release(
// CHECK: tile.scan
// CHECK: scf.for
// CHECK: tile.scan
// CHECK: scf.for
// CHECK-COUNT-5: tile.from_lane
// CHECK: %[[PAGE:.*]] = tile.read written
// CHECK: tile.write %[[PAGE]]
// CHECK: tile.write %c-1_i32
// CHECK-NOT: tile.write_adjacent

// CHECK-LABEL: func.func @manage_take(
// CHECK: %[[PAGE:.*]] = tile.read written
// CHECK: tile.write %[[PAGE]]
// CHECK-NOT: tile.write %
// CHECK: tile.write_adjacent %{{.*}}, %{{.*}} to
// CHECK: tile.write_adjacent %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} to
// CHECK: tile.write_adjacent %{{.*}}, %{{.*}} to

// PTX: .visible .entry manage_count(
// PTX: .visible .entry manage_release(
// PTX: .visible .entry manage_take(
func.func @manage(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                  %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %free: tensor<?xi32> {attn.name = "free"},
                  %span: tensor<2xi32> {attn.name = "span"}, %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 32 right 64 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}
