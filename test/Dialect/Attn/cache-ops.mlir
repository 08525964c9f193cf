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

// Neither pass may drop an operation that changes memory and has no results.
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

// CHECK-LABEL: @append_codes
// CHECK: attn.append %{{.*}}, %{{.*}} to %{{.*}} at %{{.*}} status %{{.*}} : tensor<?x?x2x64xbf16>, tensor<?x?x2x64xbf16>, <packed, {{.*}}>, tensor<?xi32>, tensor<1xi32>
!codes = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<f8E4M3FN, per = token>>
!bfloats = tensor<?x?x2x64xbf16>
func.func @append_codes(%k: !bfloats {attn.name = "k"}, %v: !bfloats {attn.name = "v"}, %kv: !codes {attn.name = "kv"},
                        %slots: !slots {attn.name = "slots"}, %n: tensor<1xi32> {attn.name = "status"}) {
  attn.append %k, %v to %kv at %slots status %n : !bfloats, !bfloats, !codes, !slots, tensor<1xi32>
  return
}

// CHECK-LABEL: @requantize
// CHECK: attn.requantize %{{.*}} at %{{.*}} to %{{.*}} at %{{.*}} : <packed, {{.*}}>, tensor<?xi32>, <paged<16>, {{.*}}>, tensor<?xi32>
!fewer = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.quantized<i4, per = 64>, value = !attn.quantized<i2, per = 32>>
func.func @requantize(%kv: !codes {attn.name = "kv"}, %low: !fewer {attn.name = "low"}, %from: !slots {attn.name = "from"},
                      %to: !slots {attn.name = "to"}) {
  attn.requantize %kv at %from to %low at %to : !codes, !slots, !fewer, !slots
  return
}

// A latent cache has keys alone, of which values are a part.
!latents = !attn.kv<paged<16>, heads = 1, dim = 576, key = bf16, value = first<512>>
!latent_rows = tensor<?x?x1x576xbf16>

// CHECK-LABEL: @append_strided
// CHECK: attn.append %{{.*}}, %{{.*}} to %{{.*}} at %{{.*}} strided status %{{.*}} : tensor<?x?x2x64xbf16>
func.func @append_strided(%k: !bfloats {attn.name = "k"}, %v: !bfloats {attn.name = "v"}, %kv: !codes {attn.name = "kv"},
                          %slots: !slots {attn.name = "slots"}, %n: tensor<1xi32> {attn.name = "status"}) {
  attn.append %k, %v to %kv at %slots strided status %n : !bfloats, !bfloats, !codes, !slots, tensor<1xi32>
  return
}

// CHECK-LABEL: @append_latents
// CHECK: attn.append %{{[a-z0-9]+}} to %{{.*}} at %{{.*}} : tensor<?x?x1x576xbf16>, <paged<16>, heads = 1, dim = 576, key = bf16, value = first<512>>, tensor<?xi32>
func.func @append_latents(%k: !latent_rows {attn.name = "k"}, %kv: !latents {attn.name = "kv"},
                          %slots: !slots {attn.name = "slots"}) {
  attn.append %k to %kv at %slots : !latent_rows, !latents, !slots
  return
}

// CHECK-LABEL: @gather_latents
// CHECK: %[[K:.*]] = attn.gather %{{.*}} at %{{.*}} : <paged<16>, {{.*}}>, tensor<?xi32> -> tensor<?x?x1x576xbf16>
func.func @gather_latents(%kv: !latents {attn.name = "kv"}, %slots: !slots {attn.name = "slots"}) -> !latent_rows {
  %k = attn.gather %kv at %slots : !latents, !slots -> !latent_rows
  return %k : !latent_rows
}

!prows = tensor<?x?x2x64xf16>
!pqueries = tensor<?x?x6x64xf16>
!pweights = tensor<?x64xf32>
!ptable = tensor<?x16xf16>
!plist = tensor<?xi32>
!pcache = !attn.kv<paged<16>, heads = 2, dim = 64, key = f16, value = f16>

// CHECK-LABEL: @prepare
// CHECK: %[[R:.*]] = attn.append %{{.*}}, %{{.*}} to %{{.*}} at %{{.*}} query %{{.*}} : tensor<?x?x6x64xf16> norm %{{.*}} : tensor<?x64xf32> epsilon 9.99999997E-7 query_norm %{{.*}} : tensor<?x64xf32> rotate %{{.*}}, %{{.*}} at %{{.*}} : tensor<?x16xf16>, tensor<?x16xf16>, tensor<?xi32> interleaved : tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16>, <paged<16>, {{.*}}>, tensor<?xi32> -> tensor<?x?x6x64xf16>
// CHECK: return %[[R]]
func.func @prepare(%k: !prows {attn.name = "k"}, %v: !prows {attn.name = "v"}, %kv: !pcache {attn.name = "kv"},
               %slots: !plist {attn.name = "slots"}, %q: !pqueries {attn.name = "q"}, %wk: !pweights {attn.name = "k_norm"},
               %wq: !pweights {attn.name = "q_norm"}, %cos: !ptable {attn.name = "cos"}, %sin: !ptable {attn.name = "sin"},
               %at: !plist {attn.name = "positions"}) -> !pqueries {
  %r = attn.append %k, %v to %kv at %slots query %q : !pqueries norm %wk : !pweights epsilon 1.0e-6 query_norm %wq : !pweights
      rotate %cos, %sin at %at : !ptable, !ptable, !plist interleaved : !prows, !prows, !pcache, !plist -> !pqueries
  return %r : !pqueries
}

// CHECK-LABEL: @prepare_keys
// CHECK: attn.append %{{.*}}, %{{.*}} to %{{.*}} at %{{.*}} norm %{{.*}} : tensor<?x64xf32> epsilon 0.000000e+00 : tensor
func.func @prepare_keys(%k: !prows {attn.name = "k"}, %v: !prows {attn.name = "v"}, %kv: !pcache {attn.name = "kv"},
                      %slots: !plist {attn.name = "slots"}, %wk: !pweights {attn.name = "k_norm"}) {
  attn.append %k, %v to %kv at %slots norm %wk : !pweights epsilon 0.0 : !prows, !prows, !pcache, !plist
  return
}

!lrows = tensor<?x?x1x576xbf16>
!lqueries = tensor<?x?x16x64xbf16>
!ltable = tensor<?x32xf32>
!lcache = !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>

// CHECK-LABEL: @prepare_latents
// CHECK: %[[R:.*]] = attn.append %{{[a-z0-9]+}} to %{{.*}} at %{{.*}} query %{{.*}} : tensor<?x?x16x64xbf16> norm %{{.*}} : tensor<?x512xbf16> epsilon 9.99999997E-7 rotate %{{.*}}, %{{.*}} at %{{.*}} : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32> from 512 interleaved : tensor<?x?x1x576xbf16>, <paged<64>, {{.*}}>, tensor<?xi32> -> tensor<?x?x16x64xbf16>
// CHECK: return %[[R]]
func.func @prepare_latents(%k: !lrows {attn.name = "k"}, %kv: !lcache {attn.name = "kv"}, %slots: !plist {attn.name = "slots"},
               %q: !lqueries {attn.name = "q"}, %w: tensor<?x512xbf16> {attn.name = "k_norm"}, %cos: !ltable {attn.name = "cos"},
               %sin: !ltable {attn.name = "sin"}, %at: !plist {attn.name = "positions"}) -> !lqueries {
  %r = attn.append %k to %kv at %slots query %q : !lqueries norm %w : tensor<?x512xbf16> epsilon 1.0e-6
      rotate %cos, %sin at %at : !ltable, !ltable, !plist from 512 interleaved : !lrows, !lcache, !plist -> !lqueries
  return %r : !lqueries
}
