// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o - | FileCheck %s --check-prefix=PTX

// A warp has four lists, and eight lanes share one. They pass over its flags three times, sixteen to a load, and then
// over the columns that no move fills. Loops have as many iterations as a lane's share: no lane waits for another
// within.
// CHECK-LABEL: func.func @compact_moves(
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 1 : i32, role = "compact_tokens", rows_per_warp = 4 : i32}
// CHECK: scf.for
// CHECK: tile.read written
// CHECK: scf.for
// CHECK: tile.read_adjacent %{{.*}} : <i32> -> i32, i32, i32, i32
// CHECK: math.ctpop
// CHECK: scf.yield
// CHECK-COUNT-4: tile.from_lane
// CHECK: scf.for
// CHECK-NOT: tile.from_lane
// CHECK: tile.read_adjacent
// CHECK: scf.yield
// CHECK-COUNT-4: tile.from_lane
// CHECK: scf.for
// CHECK-NOT: tile.from_lane
// CHECK: tile.read_adjacent
// Pages are looked up only for tokens that move and slots that are filled; those at the right end are counted from
// there.
// CHECK: scf.for
// CHECK: math.cttz
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
