// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o - | FileCheck %s --check-prefix=PTX

// A warp goes over the tokens of a list at either end, four of a lane at a time, whose loads stand before the first score is
// written; then the lanes agree on the token that is worth least and on the one that leaves the window.
// CHECK-LABEL: func.func @revise_lists(
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 1 : i32, role = "revise_tokens", rows_per_warp = 1 : i32}
// CHECK: scf.for
// A list that streams has a window of its own,
// CHECK: %[[RECENT:.*]] = tile.read %arg6[
// CHECK: %[[STREAMS:.*]] = arith.cmpi ne, %[[RECENT]], %{{.*}}
// CHECK: arith.select %[[STREAMS]], %[[RECENT]], %c65_i32
// CHECK: %[[LEFT:.*]]:6 = scf.for
// CHECK-COUNT-4: tile.read written %{{.*}} : <f32> -> f32
// CHECK-COUNT-4: tile.write %{{.*}} to
// CHECK: scf.yield
// CHECK: tile.from_lane %[[LEFT]]#0
// CHECK-COUNT-29: tile.from_lane
// Pages at the right end are counted from there.
// CHECK: %[[RIGHT:.*]]:6 = scf.for
// CHECK: %[[PAGE:.*]] = arith.divui %{{.*}}, %c64_i32
// CHECK: arith.subi %{{.*}}, %[[PAGE]]
// CHECK: tile.sync warp
// What leaves the window is asked for by lists that stream alone, which decide nothing else.
// CHECK-NOT: tile.from_lane
// CHECK: arith.cmpi sle, %{{.*}}, %{{.*}} : i32
// CHECK-COUNT-3: arith.select %[[STREAMS]]
// CHECK-COUNT-4: tile.write %c-1_i32
// CHECK: return

// PTX: .visible .entry revise_lists(
func.func @revise(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 64 rows 64 release
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}
