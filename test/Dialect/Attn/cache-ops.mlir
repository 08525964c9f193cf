// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-check-signature --canonicalize --cse | FileCheck %s

!rows = tensor<?x?x2x64xf16>
!values = tensor<?x?x2x32xf16>
!slots = tensor<?xi32>
!paged = !attn.kv<paged<16>, heads = 2, dim = 64, value_dim = 32, key = f16, value = f16>
!packed = !attn.kv<packed, heads = 2, dim = 64, value_dim = 32, key = f16, value = f16>

// CHECK-LABEL: @append
// CHECK: attn.append %{{.*}}, %{{.*}} to %{{.*}} at %{{.*}} : tensor<?x?x2x64xf16>, tensor<?x?x2x32xf16>, <paged<16>, heads = 2, dim = 64, value_dim = 32, key = f16, value = f16>, tensor<?xi32>
func.func @append(%k: !rows {attn.name = "k"}, %v: !values {attn.name = "v"}, %kv: !paged {attn.name = "cache"},
                  %slots: !slots {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !values, !paged, !slots
  return
}

// Neither pass may drop what changes memory and has no results.
// CHECK-LABEL: @move
// CHECK: attn.move %{{.*}} from %{{.*}} to %{{.*}} : <packed, {{.*}}>, tensor<?xi32>, tensor<?xi32>
func.func @move(%kv: !packed {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !packed, !slots, !slots
  return
}

// CHECK-LABEL: @gather
// CHECK: %[[K:.*]], %[[V:.*]] = attn.gather %{{.*}} at %{{.*}} : <packed, {{.*}}>, tensor<?xi32> -> tensor<?x?x2x64xf16>, tensor<?x?x2x32xf16>
// CHECK: return %[[K]], %[[V]]
func.func @gather(%kv: !packed {attn.name = "kv", attn.dims = ["depth", "tokens"]},
                  %slots: !slots {attn.name = "slots", attn.dims = ["picked"]}) -> (!rows, !values) {
  %k, %v = attn.gather %kv at %slots : !packed, !slots -> !rows, !values
  return %k, %v : !rows, !values
}
