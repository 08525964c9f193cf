// RUN: attn-opt %s --attn-make-kernels --attn-walk-rows --canonicalize | FileCheck %s

// A warp takes four loads of a row, 8 heads of 128: four pieces of queries, one of keys and one of values. Loads do not
// wait for the slot.
// CHECK: func.func @append({{.*}} %[[ROTATED:[a-z0-9]+]]: tensor<?x?x32x128xbf16> {attn.name = "rotated"}, %[[COUNT:[a-z0-9]+]]: !tile.buffer<i32>
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 6 : i32, role = "append", rows_per_warp = 1 : i32}
// CHECK: scf.for
// CHECK: %[[FIRST:.*]] = arith.cmpi slt, %[[PIECE:.*]], %c4_i32
// CHECK: scf.if %[[FIRST]]
// CHECK: %[[Q:.*]] = attn.load_rows keys of %{{.*}} piece %[[PIECE]] as <chunk = 16, width = 16, lanes = 32, heads = 8>
// CHECK: %[[N:.*]] = attn.normalize_rows %[[Q]] by %{{.*}} epsilon 9.99999997E-7 layer %{{.*}} -> tensor<?x?x32x128xf32>
// CHECK: %[[R:.*]] = attn.rotate_rows %[[N]] by %{{.*}} -> tensor<?x?x32x128xbf16>
// CHECK: attn.store_rows %[[R]] to keys of %[[ROTATED]]
// CHECK: attn.load_rows keys of %{{.*}} as <chunk = 16, width = 16, lanes = 32, heads = 8>
// CHECK: %[[SLOT:.*]] = tile.read
// CHECK: %[[KEPT:.*]] = arith.cmpi ult, %[[SLOT]]
// CHECK: scf.if %[[KEPT]]
// CHECK: attn.normalize_rows {{.*}} -> tensor<?x?x8x128xf32>
// CHECK: %[[K:.*]] = attn.rotate_rows {{.*}} -> tensor<?x?x8x128xf32>
// CHECK: %[[CODES:.*]], %[[META:.*]] = attn.quantize_rows keys of %[[K]] {{.*}} as <chunk = 8, width = 16, lanes = 32, heads = 8>
// CHECK: attn.store_rows %[[CODES]] to keys of %{{.*}} listed %[[SLOT]]
// CHECK: attn.store_rows %[[META]] to keys meta of {{.*}} as <chunk = 4, width = 1, lanes = 32, heads = 8>
// CHECK: %[[V:.*]] = attn.load_rows values
// CHECK-NOT: attn.rotate_rows
// CHECK: attn.store_rows %[[V]] to values
!rows = tensor<?x?x8x128xbf16>
!queries = tensor<?x?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = bf16>
func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}, %q: !queries {attn.name = "q"},
                  %wk: tensor<?x128xf32> {attn.name = "k_norm"}, %wq: tensor<?x128xf32> {attn.name = "q_norm"},
                  %cos: tensor<?x64xf32> {attn.name = "cos"}, %sin: tensor<?x64xf32> {attn.name = "sin"},
                  %at: tensor<?xi32> {attn.name = "positions"}) -> !queries {
  %r = attn.append %k, %v to %kv at %slots query %q : !queries norm %wk : tensor<?x128xf32> epsilon 1.0e-6
      query_norm %wq : tensor<?x128xf32> rotate %cos, %sin at %at : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?xi32>
      : !rows, !rows, !cache, tensor<?xi32> -> !queries
  return %r : !queries
}
