// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages | FileCheck %s
// RUN: cat %S/../../../../lib/Conversion/AttnToTile/Pages/ReviseTokens.mlir %S/../../../../lib/Conversion/AttnToTile/Pages/Lists.mlir | attn-opt -o /dev/null
// RUN: attn-opt %s --emit=ptx --target=sm_80 -o - | FileCheck %s --check-prefix=PTX

// The kernel is the text of ReviseTokens.mlir, in which every call is inlined: sizes are numbers, and the policy's
// regions replace the calls to them.
// CHECK-LABEL: func.func @revise_lists(
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 1 : i32, role = "revise_tokens", rows_per_warp = 1 : i32}
// CHECK-NOT: call
// CHECK: scf.for
// A list that streams has a window of its own.
// CHECK-COUNT-2: tile.read %arg6[
// CHECK: %[[LEFT:.*]]:5 = scf.for
// CHECK-COUNT-4: tile.read written %{{.*}} : <f32> -> f32
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: tile.write %[[SUM]] to
// CHECK: %[[N:.*]] = arith.sitofp
// CHECK: arith.divf %[[SUM]], %[[N]]
// CHECK-COUNT-3: tile.write %{{.*}} to
// CHECK: scf.yield
// CHECK: tile.from_lane %[[LEFT]]#0
// CHECK-COUNT-24: tile.from_lane
// CHECK: %[[RIGHT:.*]]:5 = scf.for
// CHECK: tile.sync warp
// CHECK: %[[BELOW:.*]] = arith.cmpf olt
// CHECK: arith.andi %[[BELOW]]
// CHECK-COUNT-4: tile.write %c-1_i32
// CHECK: return
// CHECK-NOT: func.func

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
      left 32 right 64 window 64 rows 64
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        %n = arith.sitofp %count : i32 to f32
        %mean = arith.divf %sum, %n : f32
        attn.rank %mean
      } decide {
      ^bb0(%leaving: f32, %leaves: i1, %least: f32, %is_least: i1, %lowest: f32, %is_lowest: i1,
           %left: i32, %right: i32, %tokens: i32, %first: f32, %second: f32):
        %never = arith.constant false
        %below = arith.cmpf olt, %least, %first : f32
        %goes = arith.andi %below, %is_least : i1
        attn.decide leaving demoted %never gone %never, least demoted %goes gone %never, lowest gone %is_lowest
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}
