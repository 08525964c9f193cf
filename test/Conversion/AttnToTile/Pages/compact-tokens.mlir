// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o - | FileCheck %s --check-prefix=PTX

// A warp goes over the flags of a list three times, and then over the columns that no move fills.
// CHECK-LABEL: func.func @compact_moves(
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 1 : i32, role = "compact_tokens", rows_per_warp = 1 : i32}
// CHECK: scf.for
// CHECK: tile.read written
// CHECK: scf.for
// CHECK: tile.read %{{.*}} : <i8> -> i8
// CHECK-COUNT-5: tile.from_lane
// CHECK: scf.for
// CHECK: tile.read %{{.*}} : <i8> -> i8
// CHECK-COUNT-5: tile.from_lane
// CHECK: scf.for
// Pages at the right end are counted from there.
// CHECK: %[[PAGE:.*]] = arith.divui %{{.*}}, %c64_i32
// CHECK: %[[COLUMN:.*]] = arith.subi %{{.*}}, %[[PAGE]]
// CHECK: tile.write %{{.*}} to
// CHECK: tile.write %{{.*}} to
// CHECK: scf.for
// CHECK: tile.write %c-1_i32
// CHECK: tile.sync warp
// CHECK: tile.write %{{.*}} to
// CHECK: tile.add_to

// PTX: .visible .entry compact_moves(
func.func @compact(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                   %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %keep: tensor<?x?xi8> {attn.name = "keep"},
                   %from: tensor<?x?xi32> {attn.name = "from"}, %to: tensor<?x?xi32> {attn.name = "to"},
                   %status: tensor<1xi32> {attn.name = "status"}) {
  attn.compact_tokens %table counts %counts of %tokens right page 64 keep %keep from %from to %to status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
  return
}
