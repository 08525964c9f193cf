// RUN: attn-opt %s -split-input-file --attn-make-kernels --attn-walk-rows --canonicalize | FileCheck %s
// RUN: attn-opt %s -split-input-file --attn-make-kernels --attn-walk-rows=target=sm_80 --canonicalize | FileCheck %s --check-prefix=AMPERE
// RUN: not attn-opt %s -split-input-file --attn-make-kernels --attn-walk-rows=target=sm_1 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: unknown target 'sm_1'; known are sm_80

// A warp takes four loads of a row, 2 heads of 128 each, or two that are quantized: four pieces of queries, two of keys and
// one of values. All loads of a piece come first; each is then prepared before the next. Quantizing does not wait for the
// slot.
// CHECK: func.func @append({{.*}} %[[ROTATED:[a-z0-9]+]]: tensor<?x?x32x128xbf16> {attn.name = "rotated"}, %[[COUNT:[a-z0-9]+]]: !tile.buffer<i32>
// CHECK-SAME: tile.blocks_per_sm = 5 : i32
// CHECK-SAME: tile.launch = {grid = "rows", pieces = 7 : i32, role = "append", rows_per_warp = 1 : i32}
// CHECK: scf.for
// CHECK: %[[FIRST:.*]] = arith.cmpi slt, %[[PIECE:.*]], %c4_i32
// CHECK: scf.if %[[FIRST]]
// CHECK: %[[PLACE:.*]] = arith.muli %[[PIECE]], %c4_i32
// CHECK: %[[Q:.*]] = attn.load_rows keys of %{{.*}} piece %[[PLACE]] as <chunk = 16, width = 16, lanes = 32, heads = 2>
// CHECK-COUNT-3: attn.load_rows keys
// CHECK: %[[N:.*]] = attn.normalize_rows %[[Q]] by %{{.*}} epsilon 9.99999997E-7 layer %{{.*}} -> tensor<?x?x32x128xf32>
// CHECK: %[[R:.*]] = attn.rotate_rows %[[N]] by %{{.*}} -> tensor<?x?x32x128xbf16>
// CHECK: attn.normalize_rows
// CHECK: attn.store_rows %[[R]] to keys of %[[ROTATED]] {{.*}} piece %[[PLACE]]
// CHECK-COUNT-3: attn.store_rows
// CHECK-COUNT-2: attn.load_rows keys of %{{.*}} as <chunk = 16, width = 16, lanes = 32, heads = 2>
// CHECK: %[[SLOT:.*]] = tile.read
// CHECK: %[[KEPT:.*]] = arith.cmpi ult, %[[SLOT]]
// CHECK: attn.normalize_rows {{.*}} -> tensor<?x?x8x128xf32>
// CHECK: %[[K:.*]] = attn.rotate_rows {{.*}} -> tensor<?x?x8x128xf32>
// CHECK: %[[CODES:.*]], %[[META:.*]] = attn.quantize_rows keys of %[[K]] {{.*}} as <chunk = 8, width = 16, lanes = 32, heads = 2>
// CHECK: attn.quantize_rows
// CHECK: scf.if %[[KEPT]]
// CHECK: attn.store_rows %[[CODES]] to keys of %{{.*}} listed %[[SLOT]]
// CHECK: attn.store_rows %[[META]] to keys meta of {{.*}} as <chunk = 4, width = 1, lanes = 32, heads = 2>
// CHECK: %[[V:.*]] = attn.load_rows values
// CHECK-COUNT-3: attn.load_rows values
// CHECK-NOT: attn.rotate_rows
// CHECK: scf.if
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

// -----

// The line of a latent is one piece of three loads. Only its first 512 features have weights, and its last 64 turn. Queries
// are features that turn, whose heads lie apart.
// CHECK: func.func @append_latents
// CHECK-SAME: pieces = 5 : i32
// CHECK: %[[Q:.*]] = attn.load_rows keys of %{{.*}} as <chunk = 16, width = 8, lanes = 32, heads = 4, apart = true>
// CHECK-NOT: attn.normalize_rows
// CHECK: attn.rotate_rows %[[Q]] interleaved by %{{.*}} at %{{[0-9]+}} as
// CHECK: attn.store_rows
// CHECK: %[[K:.*]] = attn.load_rows keys of %{{.*}} as <chunk = 16, width = 72, lanes = 32, heads = 1>
// CHECK: %[[N:.*]] = attn.normalize_rows %[[K]] by {{.*}} tensor<?x512xbf16> -> tensor<?x?x1x576xf32>
// CHECK: %[[R:.*]] = attn.rotate_rows %[[N]] interleaved by %{{.*}} from 512 as
// CHECK: attn.store_rows %[[R]] to keys
// CHECK-NOT: attn.load_rows
!latents = tensor<?x?x1x576xbf16>
!turned = tensor<?x?x64x64xbf16>
!table = tensor<?x32xf32>
!lines = !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>
func.func @append_latents(%k: !latents {attn.name = "k"}, %kv: !lines {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"},
                          %q: !turned {attn.name = "q"}, %w: tensor<?x512xbf16> {attn.name = "k_norm"},
                          %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"},
                          %at: tensor<?xi32> {attn.name = "positions"}) -> !turned {
  %r = attn.append %k to %kv at %slots query %q : !turned norm %w : tensor<?x512xbf16> epsilon 1.0e-6
      rotate %cos, %sin at %at : !table, !table, tensor<?xi32> from 512 interleaved
      : !latents, !lines, tensor<?xi32> -> !turned
  return %r : !turned
}

// -----

// Strided rows are pieces of heads, too, and their bits are stored as they were loaded.
// CHECK: func.func @append_strided
// CHECK-SAME: tile.blocks_per_sm = 5 : i32
// CHECK-SAME: pieces = 2 : i32
// CHECK: %[[K:.*]] = attn.load_rows keys of %{{.*}} as <chunk = 16, width = 16, lanes = 32, heads = 2>
// CHECK: attn.store_rows %[[K]] to keys of %{{.*}} listed
// CHECK: %[[V:.*]] = attn.load_rows values
// CHECK: attn.store_rows %[[V]] to values
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @append_strided(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                          %slots: tensor<?xi32> {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots strided : !rows, !rows, !cache, tensor<?xi32>
  return
}

// -----

// Heads of 128 that are all quantized with metadata: more blocks, and one more where ptxas spills nothing with it.
// CHECK: func.func @append_quantized
// CHECK-SAME: tile.blocks_per_sm = 7 : i32
// AMPERE: func.func @append_quantized
// AMPERE-SAME: tile.blocks_per_sm = 6 : i32
!rows = tensor<?x?x8x128xbf16>
!queries = tensor<?x?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
func.func @append_quantized(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}, %q: !queries {attn.name = "q"},
                  %wk: tensor<?x128xf32> {attn.name = "k_norm"}, %wq: tensor<?x128xf32> {attn.name = "q_norm"},
                  %cos: tensor<?x64xf32> {attn.name = "cos"}, %sin: tensor<?x64xf32> {attn.name = "sin"},
                  %at: tensor<?xi32> {attn.name = "positions"}) -> !queries {
  %r = attn.append %k, %v to %kv at %slots query %q : !queries norm %wk : tensor<?x128xf32> epsilon 1.0e-6
      query_norm %wq : tensor<?x128xf32> rotate %cos, %sin at %at : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?xi32>
      : !rows, !rows, !cache, tensor<?xi32> -> !queries
  return %r : !queries
}
