// Kernels of LayoutsTest.cpp, at the tile level and without layouts: one warp each.
!queries = !tile.shared<query 16, feature 16, bf16>
!keys = !tile.shared<key 32, feature 16, bf16>
!scores = !tile.fragment<[query 16, key 32], f32>
!transposed = !tile.fragment<[key 32, query 16], f32>
!query_values = !tile.fragment<[query 16], f32>
!key_values = !tile.fragment<[key 32], f32>

gpu.module @layouts {
  // S = Q K^T and St = K Q^T; P = (S - max over keys) * scale of the key + bias of the query, and Pt the same from
  // St. The maximum of S serves Pt, that of St serves P; dK = bf16(P)^T Q.
  func.func @both(%qs: !tile.buffer<bf16>, %ks: !tile.buffer<bf16>, %biases: !tile.buffer<f32>,
                  %scales: !tile.buffer<f32>, %p_out: !tile.buffer<f32>, %pt_out: !tile.buffer<f32>,
                  %pp_out: !tile.buffer<f32>, %dk_out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %c16 = arith.constant 16 : i32
    %c32 = arith.constant 32 : i32
    %origin = arith.constant 0 : i64
    %stride16 = arith.constant 16 : i64
    %stride32 = arith.constant 32 : i64
    %zero = arith.constant 0.0 : f32
    %q = tile.alloc : !queries
    %k = tile.alloc : !keys
    tile.gather warp %c0 to %c16 from %qs origins %origin strides [16] into %q (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !queries
    tile.gather warp %c0 to %c32 from %ks origins %origin strides [16] into %k (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !keys
    tile.commit
    tile.wait 0
    tile.sync warp
    %no_scores = tile.splat %zero : f32 -> !scores
    %no_transposed = tile.splat %zero : f32 -> !transposed
    %s = tile.mma %q at %c0, %k, %no_scores : !queries, !keys, !scores -> !scores
    %st = tile.mma %k at %c0, %q, %no_transposed : !keys, !queries, !transposed -> !transposed
    %m = tile.reduce max %s : !scores -> !query_values
    %mt = tile.reduce max %st : !transposed -> !query_values
    %bias = tile.load_vector %biases (%i: i32) {
      %w = arith.extsi %i : i32 to i64
      tile.yield %w : i64
    } : <f32> -> !query_values
    %scale = tile.load_vector %scales (%i: i32) {
      %w = arith.extsi %i : i32 to i64
      tile.yield %w : i64
    } : <f32> -> !key_values
    %p = tile.map %s, %mt, %scale, %bias (%x: f32, %max: f32, %a: f32, %b: f32) {
      %d = arith.subf %x, %max : f32
      %e = arith.mulf %d, %a : f32
      %f = arith.addf %e, %b : f32
      tile.yield %f : f32
    } : !scores, !query_values, !key_values, !query_values -> !scores
    %pt = tile.map %st, %m, %scale, %bias (%x: f32, %max: f32, %a: f32, %b: f32) {
      %d = arith.subf %x, %max : f32
      %e = arith.mulf %d, %a : f32
      %f = arith.addf %e, %b : f32
      tile.yield %f : f32
    } : !transposed, !query_values, !key_values, !query_values -> !transposed
    tile.store %p to %p_out lines %c16 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride32 : i64
      tile.yield %at : i64
    } : !scores -> <f32>
    tile.store %pt to %pt_out lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride16 : i64
      tile.yield %at : i64
    } : !transposed -> <f32>
    %pp = tile.convert %p : !scores -> !transposed
    tile.store %pp to %pp_out lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride16 : i64
      tile.yield %at : i64
    } : !transposed -> <f32>
    %rounded = tile.cast %p : !scores -> !tile.fragment<[query 16, key 32], bf16>
    %moved = tile.convert %rounded : !tile.fragment<[query 16, key 32], bf16> -> !tile.fragment<[key 32, query 16], bf16>
    %none = tile.splat %zero : f32 -> !tile.fragment<[key 32, feature 16], f32>
    %dk = tile.mma %moved, %q, %none : !tile.fragment<[key 32, query 16], bf16>, !queries, !tile.fragment<[key 32, feature 16], f32> -> !tile.fragment<[key 32, feature 16], f32>
    tile.store %dk to %dk_out lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride16 : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 32, feature 16], f32> -> <f32>
    return
  }

  // Sums and maxima of a 16x32 tile of f32 along both axes, directly and through lanes' shares.
  func.func @reductions(%in: !tile.buffer<f32>, %row_sum: !tile.buffer<f32>, %row_max: !tile.buffer<f32>,
                        %col_sum: !tile.buffer<f32>, %col_max: !tile.buffer<f32>, %shares: !tile.buffer<f32>)
      attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %c16 = arith.constant 16 : i32
    %c32 = arith.constant 32 : i32
    %origin = arith.constant 0 : i64
    %tile = tile.alloc : !tile.shared<query 16, key 32, f32>
    tile.gather warp %c0 to %c16 from %in origins %origin strides [32] into %tile (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<f32> -> !tile.shared<query 16, key 32, f32>
    tile.commit
    tile.wait 0
    tile.sync warp
    %x = tile.load %tile at %c0 : !tile.shared<query 16, key 32, f32> -> !scores
    %rs = tile.reduce add %x : !scores -> !query_values
    %rm = tile.reduce max %x : !scores -> !query_values
    %cs = tile.reduce add %x : !scores -> !key_values
    %cm = tile.reduce max %x : !scores -> !key_values
    %parts = tile.reduce add %x : !scores -> !tile.fragment<[key 32], f32, partial>
    %whole = tile.complete %parts : !tile.fragment<[key 32], f32, partial> -> !key_values
    tile.store %rs to %row_sum lines %c16 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !query_values -> <f32>
    tile.store %rm to %row_max lines %c16 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !query_values -> <f32>
    tile.store %cs to %col_sum lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !key_values -> <f32>
    tile.store %cm to %col_max lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !key_values -> <f32>
    tile.store %whole to %shares lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      tile.yield %w : i64
    } : !key_values -> <f32>
    return
  }

  // A tile in the layout of a left operand, as ldmatrix reads it; then as an accumulator, back as a left operand, and
  // with its axes exchanged, from and to each of the two.
  func.func @bytes(%in: !tile.buffer<i8>, %out: !tile.buffer<f32>, %back: !tile.buffer<f32>,
                    %acc_out: !tile.buffer<f32>, %lhs_out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %lines = arith.constant 32 : i32
    %columns = arith.constant 64 : i32
    %origin = arith.constant 0 : i64
    %tile = tile.alloc : !tile.shared<query 32, key 64, i8>
    tile.gather warp %c0 to %lines from %in origins %origin strides [64] into %tile (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<i8> -> !tile.shared<query 32, key 64, i8>
    tile.commit
    tile.wait 0
    tile.sync warp
    %lhs = tile.load %tile at %c0 : !tile.shared<query 32, key 64, i8> -> !tile.fragment<[query 32, key 64], i8>
    %acc = tile.convert %lhs : !tile.fragment<[query 32, key 64], i8> -> !tile.fragment<[query 32, key 64], i8, acc>
    %again = tile.convert %acc : !tile.fragment<[query 32, key 64], i8, acc> -> !tile.fragment<[query 32, key 64], i8, lhs>
    %turned = tile.convert %acc : !tile.fragment<[query 32, key 64], i8, acc> -> !tile.fragment<[key 64, query 32], i8, acc>
    %lhs_transposed = tile.convert %lhs : !tile.fragment<[query 32, key 64], i8> -> !tile.fragment<[key 64, query 32], i8, lhs>
    %acc_f32 = tile.map %acc (%x: i8) {
      %y = arith.sitofp %x : i8 to f32
      tile.yield %y : f32
    } : !tile.fragment<[query 32, key 64], i8, acc> -> !tile.fragment<[query 32, key 64], f32>
    %acc_stride = arith.constant 64 : i64
    tile.store %acc_f32 to %out lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %acc_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 64], f32> -> <f32>
    %again_acc = tile.convert %again : !tile.fragment<[query 32, key 64], i8, lhs> -> !tile.fragment<[query 32, key 64], i8, acc>
    %again_f32 = tile.map %again_acc (%x: i8) {
      %y = arith.sitofp %x : i8 to f32
      tile.yield %y : f32
    } : !tile.fragment<[query 32, key 64], i8, acc> -> !tile.fragment<[query 32, key 64], f32>
    %again_stride = arith.constant 64 : i64
    tile.store %again_f32 to %back lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %again_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 64], f32> -> <f32>
    %turned_f32 = tile.map %turned (%x: i8) {
      %y = arith.sitofp %x : i8 to f32
      tile.yield %y : f32
    } : !tile.fragment<[key 64, query 32], i8, acc> -> !tile.fragment<[key 64, query 32], f32>
    %transposed_stride = arith.constant 32 : i64
    tile.store %turned_f32 to %acc_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 64, query 32], f32> -> <f32>
    %lhs_transposed_acc = tile.convert %lhs_transposed : !tile.fragment<[key 64, query 32], i8, lhs> -> !tile.fragment<[key 64, query 32], i8, acc>
    %lhs_transposed_f32 = tile.map %lhs_transposed_acc (%x: i8) {
      %y = arith.sitofp %x : i8 to f32
      tile.yield %y : f32
    } : !tile.fragment<[key 64, query 32], i8, acc> -> !tile.fragment<[key 64, query 32], f32>
    %lhs_transposed_stride = arith.constant 32 : i64
    tile.store %lhs_transposed_f32 to %lhs_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %lhs_transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 64, query 32], f32> -> <f32>
    return
  }

  // A tile in the layout of a left operand, as ldmatrix reads it; then as an accumulator, back as a left operand, and
  // with its axes exchanged, from and to each of the two.
  func.func @halves(%in: !tile.buffer<bf16>, %out: !tile.buffer<f32>, %back: !tile.buffer<f32>,
                    %acc_out: !tile.buffer<f32>, %lhs_out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %lines = arith.constant 32 : i32
    %columns = arith.constant 48 : i32
    %origin = arith.constant 0 : i64
    %tile = tile.alloc : !tile.shared<query 32, key 48, bf16>
    tile.gather warp %c0 to %lines from %in origins %origin strides [48] into %tile (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<bf16> -> !tile.shared<query 32, key 48, bf16>
    tile.commit
    tile.wait 0
    tile.sync warp
    %lhs = tile.load %tile at %c0 : !tile.shared<query 32, key 48, bf16> -> !tile.fragment<[query 32, key 48], bf16>
    %acc = tile.convert %lhs : !tile.fragment<[query 32, key 48], bf16> -> !tile.fragment<[query 32, key 48], bf16, acc>
    %again = tile.convert %acc : !tile.fragment<[query 32, key 48], bf16, acc> -> !tile.fragment<[query 32, key 48], bf16, lhs>
    %turned = tile.convert %acc : !tile.fragment<[query 32, key 48], bf16, acc> -> !tile.fragment<[key 48, query 32], bf16, acc>
    %lhs_transposed = tile.convert %lhs : !tile.fragment<[query 32, key 48], bf16> -> !tile.fragment<[key 48, query 32], bf16, lhs>
    %acc_f32 = tile.map %acc (%x: bf16) {
      %y = arith.extf %x : bf16 to f32
      tile.yield %y : f32
    } : !tile.fragment<[query 32, key 48], bf16, acc> -> !tile.fragment<[query 32, key 48], f32>
    %acc_stride = arith.constant 48 : i64
    tile.store %acc_f32 to %out lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %acc_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 48], f32> -> <f32>
    %again_acc = tile.convert %again : !tile.fragment<[query 32, key 48], bf16, lhs> -> !tile.fragment<[query 32, key 48], bf16, acc>
    %again_f32 = tile.map %again_acc (%x: bf16) {
      %y = arith.extf %x : bf16 to f32
      tile.yield %y : f32
    } : !tile.fragment<[query 32, key 48], bf16, acc> -> !tile.fragment<[query 32, key 48], f32>
    %again_stride = arith.constant 48 : i64
    tile.store %again_f32 to %back lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %again_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 48], f32> -> <f32>
    %turned_f32 = tile.map %turned (%x: bf16) {
      %y = arith.extf %x : bf16 to f32
      tile.yield %y : f32
    } : !tile.fragment<[key 48, query 32], bf16, acc> -> !tile.fragment<[key 48, query 32], f32>
    %transposed_stride = arith.constant 32 : i64
    tile.store %turned_f32 to %acc_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 48, query 32], f32> -> <f32>
    %lhs_transposed_acc = tile.convert %lhs_transposed : !tile.fragment<[key 48, query 32], bf16, lhs> -> !tile.fragment<[key 48, query 32], bf16, acc>
    %lhs_transposed_f32 = tile.map %lhs_transposed_acc (%x: bf16) {
      %y = arith.extf %x : bf16 to f32
      tile.yield %y : f32
    } : !tile.fragment<[key 48, query 32], bf16, acc> -> !tile.fragment<[key 48, query 32], f32>
    %lhs_transposed_stride = arith.constant 32 : i64
    tile.store %lhs_transposed_f32 to %lhs_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %lhs_transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 48, query 32], f32> -> <f32>
    return
  }

  // A tile in the layout of a left operand, as ldmatrix reads it; then as an accumulator, back as a left operand, and
  // with its axes exchanged, from and to each of the two.
  func.func @words(%in: !tile.buffer<f32>, %out: !tile.buffer<f32>, %back: !tile.buffer<f32>,
                    %acc_out: !tile.buffer<f32>, %lhs_out: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %lines = arith.constant 32 : i32
    %columns = arith.constant 48 : i32
    %origin = arith.constant 0 : i64
    %tile = tile.alloc : !tile.shared<query 32, key 48, f32>
    tile.gather warp %c0 to %lines from %in origins %origin strides [48] into %tile (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<f32> -> !tile.shared<query 32, key 48, f32>
    tile.commit
    tile.wait 0
    tile.sync warp
    %lhs = tile.load %tile at %c0 : !tile.shared<query 32, key 48, f32> -> !tile.fragment<[query 32, key 48], f32>
    %acc = tile.convert %lhs : !tile.fragment<[query 32, key 48], f32> -> !tile.fragment<[query 32, key 48], f32, acc>
    %again = tile.convert %acc : !tile.fragment<[query 32, key 48], f32, acc> -> !tile.fragment<[query 32, key 48], f32, lhs>
    %turned = tile.convert %acc : !tile.fragment<[query 32, key 48], f32, acc> -> !tile.fragment<[key 48, query 32], f32, acc>
    %lhs_transposed = tile.convert %lhs : !tile.fragment<[query 32, key 48], f32> -> !tile.fragment<[key 48, query 32], f32, lhs>
    %acc_f32 = tile.map %acc (%x: f32) {
      tile.yield %x : f32
    } : !tile.fragment<[query 32, key 48], f32, acc> -> !tile.fragment<[query 32, key 48], f32>
    %acc_stride = arith.constant 48 : i64
    tile.store %acc_f32 to %out lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %acc_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 48], f32> -> <f32>
    %again_acc = tile.convert %again : !tile.fragment<[query 32, key 48], f32, lhs> -> !tile.fragment<[query 32, key 48], f32, acc>
    %again_f32 = tile.map %again_acc (%x: f32) {
      tile.yield %x : f32
    } : !tile.fragment<[query 32, key 48], f32, acc> -> !tile.fragment<[query 32, key 48], f32>
    %again_stride = arith.constant 48 : i64
    tile.store %again_f32 to %back lines %lines (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %again_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 48], f32> -> <f32>
    %turned_f32 = tile.map %turned (%x: f32) {
      tile.yield %x : f32
    } : !tile.fragment<[key 48, query 32], f32, acc> -> !tile.fragment<[key 48, query 32], f32>
    %transposed_stride = arith.constant 32 : i64
    tile.store %turned_f32 to %acc_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 48, query 32], f32> -> <f32>
    %lhs_transposed_acc = tile.convert %lhs_transposed : !tile.fragment<[key 48, query 32], f32, lhs> -> !tile.fragment<[key 48, query 32], f32, acc>
    %lhs_transposed_f32 = tile.map %lhs_transposed_acc (%x: f32) {
      tile.yield %x : f32
    } : !tile.fragment<[key 48, query 32], f32, acc> -> !tile.fragment<[key 48, query 32], f32>
    %lhs_transposed_stride = arith.constant 32 : i64
    tile.store %lhs_transposed_f32 to %lhs_out lines %columns (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %lhs_transposed_stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 48, query 32], f32> -> <f32>
    return
  }

  // Converts vectors along rows to vectors along columns, and back: of 8, 16 and 32 bits.
  func.func @vectors(%bytes: !tile.buffer<i8>, %halves: !tile.buffer<f16>, %words: !tile.buffer<i32>,
                     %out: !tile.buffer<f32>, %turned: !tile.buffer<f32>) attributes {tile.threads = 32 : i32} {
    %c32 = arith.constant 32 : i32
    %stride = arith.constant 32 : i64
    %b = tile.load_vector %bytes (%i: i32) {
      %w = arith.extsi %i : i32 to i64
      tile.yield %w : i64
    } : <i8> -> !tile.fragment<[key 32], i8>
    %h = tile.load_vector %halves (%i: i32) {
      %w = arith.extsi %i : i32 to i64
      tile.yield %w : i64
    } : <f16> -> !tile.fragment<[key 32], f16>
    %n = tile.load_vector %words (%i: i32) {
      %w = arith.extsi %i : i32 to i64
      tile.yield %w : i64
    } : <i32> -> !tile.fragment<[query 32], i32>
    %sum = tile.map %b, %h, %n (%x: i8, %y: f16, %z: i32) {
      %xf = arith.sitofp %x : i8 to f32
      %yf = arith.extf %y : f16 to f32
      %zf = arith.sitofp %z : i32 to f32
      %xy = arith.mulf %xf, %yf : f32
      %s = arith.addf %xy, %zf : f32
      tile.yield %s : f32
    } : !tile.fragment<[key 32], i8>, !tile.fragment<[key 32], f16>, !tile.fragment<[query 32], i32> -> !tile.fragment<[query 32, key 32], f32>
    %sum_transposed = tile.map %b, %h, %n (%x: i8, %y: f16, %z: i32) {
      %xf = arith.sitofp %x : i8 to f32
      %yf = arith.extf %y : f16 to f32
      %zf = arith.sitofp %z : i32 to f32
      %xy = arith.mulf %xf, %yf : f32
      %s = arith.addf %xy, %zf : f32
      tile.yield %s : f32
    } : !tile.fragment<[key 32], i8>, !tile.fragment<[key 32], f16>, !tile.fragment<[query 32], i32> -> !tile.fragment<[key 32, query 32], f32>
    tile.store %sum to %out lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[query 32, key 32], f32> -> <f32>
    tile.store %sum_transposed to %turned lines %c32 (%line: i32) {
      %w = arith.extsi %line : i32 to i64
      %at = arith.muli %w, %stride : i64
      tile.yield %at : i64
    } : !tile.fragment<[key 32, query 32], f32> -> <f32>
    return
  }
}
