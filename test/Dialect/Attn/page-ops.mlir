// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-check-signature --canonicalize --cse | FileCheck %s

// No pass may drop what changes memory and has no results.
// CHECK-LABEL: @manage
// CHECK: attn.manage_pages %{{.*}} counts %{{.*}} of %{{.*}} left 32 right 64 free %{{.*}} span %{{.*}} status %{{.*}} : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
func.func @manage(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                  %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %free: tensor<?xi32> {attn.name = "free"},
                  %span: tensor<2xi32> {attn.name = "span"}, %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 32 right 64 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}
