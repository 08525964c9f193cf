// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-check-signature --canonicalize --cse | FileCheck %s

// No pass may drop an operation that changes memory and has no results.
// CHECK-LABEL: @manage
// CHECK: attn.manage_pages %{{.*}} counts %{{.*}} of %{{.*}} left 32 right 64 free %{{.*}} span %{{.*}} status %{{.*}} : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
func.func @manage(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                  %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %free: tensor<?xi32> {attn.name = "free"},
                  %span: tensor<2xi32> {attn.name = "span"}, %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 32 right 64 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// CHECK-LABEL: @compact
// CHECK: attn.compact_tokens %{{.*}} counts %{{.*}} of %{{.*}} right page 64 keep %{{.*}} from %{{.*}} to %{{.*}} status %{{.*}} : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
func.func @compact(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                   %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %keep: tensor<?x?xi8> {attn.name = "keep"},
                   %from: tensor<?x?xi32> {attn.name = "from"}, %to: tensor<?x?xi32> {attn.name = "to"},
                   %status: tensor<1xi32> {attn.name = "status"}) {
  attn.compact_tokens %table counts %counts of %tokens right page 64 keep %keep from %from to %to status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
  return
}

// CHECK-LABEL: @revise
// CHECK: attn.revise_tokens %{{.*}} worth %{{.*}}, %{{.*}} done %{{.*}} demote %{{.*}} to %{{.*}} move %{{.*}} to %{{.*}} left 32 right 64 window 64 rows 64 rank {
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
