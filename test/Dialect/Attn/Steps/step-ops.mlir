// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

// Every step of an update prints as it is parsed, with all its optional parts and without any.

!q = !tile.fragment<[query 16, feature 64], f16>
!tile = !tile.shared<key 32, feature 64, f16>
!codes = !tile.shared<key 32, feature 64, i4>
!keys = !tile.fragment<[key 32, feature 64], f16>
!values = !tile.fragment<[feature 64, key 32], f16>
!s = !tile.fragment<[query 16, key 32], f32>
!o = !tile.fragment<[query 16, feature 64], f32>
!row = !tile.fragment<[query 16], f32>
!sum = !tile.fragment<[query 16], f32, partial>
!at = !tile.fragment<[query 16], i32>
!token = !tile.fragment<[key 32], f32>
!half = !tile.fragment<[key 32], f16>

// CHECK-LABEL: func.func @scores(
func.func @scores(%q: !q, %k: !tile, %line: i32, %begin: !s, %scale: f32, %of: !token, %rows: !tile.shared<query 64, feature 64, f16>) {
  // CHECK: attn.scores mma %arg0, %arg1 : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> <[query 16, key 32], f32>
  %0 = attn.scores mma %q, %k : !q, !tile -> !s
  // CHECK: attn.scores wgmma %arg6, %arg1 at %arg2 plus %arg3 : !tile.fragment<[query 16, key 32], f32> times %arg4 tokens %arg5 : !tile.fragment<[key 32], f32> : !tile.shared
  %1 = attn.scores wgmma %rows, %k at %line plus %begin : !s times %scale tokens %of : !token : !tile.shared<query 64, feature 64, f16>, !tile -> !s
  // CHECK: attn.scores started %arg0, %arg1 {note} :
  %2 = attn.scores started %q, %k {note} : !q, !tile -> !s
  return
}

// CHECK-LABEL: func.func @group_sums(
func.func @group_sums(%q: !q) {
  // CHECK: attn.group_sums %arg0 : <[query 16, feature 64], f16> -> !tile.fragment<[query 16], f32>
  %0 = attn.group_sums %q : !q -> !row
  // CHECK: attn.group_sums %arg0 per 32 : <[query 16, feature 64], f16> -> !tile.fragment<[query 16], f32>, !tile.fragment<[query 16], f32>
  %1:2 = attn.group_sums %q per 32 : !q -> !row, !row
  return
}

// CHECK-LABEL: func.func @accumulate(
func.func @accumulate(%p: !s, %v: !tile, %o: !o) {
  // CHECK: attn.accumulate mma %arg0, %arg1 into %arg2 : <[query 16, key 32], f32>, !tile.shared<key 32, feature 64, f16> -> <[query 16, feature 64], f32>
  %0 = attn.accumulate mma %p, %v into %o : !s, !tile -> !o
  // CHECK: attn.accumulate started %arg0, %arg1 into %arg2 :
  %1 = attn.accumulate started %p, %v into %o : !s, !tile -> !o
  return
}

// CHECK-LABEL: func.func @dequantize(
func.func @dequantize(%codes: !codes, %scale: !half, %zero: !half) {
  // CHECK: attn.dequantize %arg0 : <key 32, feature 64, i4> -> <[key 32, feature 64], f16>
  %0 = attn.dequantize %codes : !codes -> !keys
  // CHECK: attn.dequantize %arg0 scales %arg1, %arg1 : !tile.fragment<[key 32], f16>, !tile.fragment<[key 32], f16> zeros %arg2, %arg2 : !tile.fragment<[key 32], f16>, !tile.fragment<[key 32], f16> per 32 : <key 32, feature 64, i4> -> <[feature 64, key 32], f16>
  %1 = attn.dequantize %codes scales %scale, %scale : !half, !half zeros %zero, %zero : !half, !half per 32 : !codes -> !values
  // CHECK: attn.dequantize %arg0 tiny :
  %2 = attn.dequantize %codes tiny : !codes -> !values
  return
}

// CHECK-LABEL: func.func @score_fn(
func.func @score_fn(%s: !s, %scale: f32, %heads: !at, %at: !at, %first: i32, %pos0: i32, %table: !tile.buffer<f32>, %i: i64) {
  // CHECK: attn.score_fn %arg0 times %arg1 heads %arg2 at %arg3 tokens %arg4 pos0 %arg5 {
  // CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: i32, %{{.*}}: i32, %{{.*}}: i32):
  // CHECK: attn.yield %{{.*}} : f32
  // CHECK-NEXT: } : <[query 16, key 32], f32>, <[query 16], i32>, <[query 16], i32> -> !tile.fragment<[query 16, key 32], f32>
  %0 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    %y = math.tanh %x : f32
    attn.yield %y : f32
  } : !s, !at, !at -> !s
  // CHECK: attn.score_fn %arg0 times %arg1 heads %arg2 at %arg3 tokens %arg4 pos0 %arg5 attributes {reads = array<i64: 0>} {
  // CHECK: -> !tile.fragment<[query 16, key 32], f32>, !tile.fragment<[query 16, key 32], f32>, !tile.fragment<[query 16, key 32], f32>
  %1:3 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 attributes {reads = array<i64: 0>} {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    %y = tile.read %table[%i] : <f32> -> f32
    attn.yield %y : f32
  } : !s, !at, !at -> !s, !s, !s
  return
}

// CHECK-LABEL: func.func @mask(
func.func @mask(%s: !s, %at: !at, %first: i32, %end: i32, %pos0: i32, %sink: i32, %window: i32, %partial: i1, %words: !tile.buffer<i32>) {
  // CHECK: attn.mask %arg0 at %arg1 tokens %arg2 to %arg3 pos0 %arg4 see causal : <[query 16], i32>, <[query 16, key 32], f32>
  %0 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see causal : !at, !s
  // CHECK: attn.mask %arg0 at %arg1 tokens %arg2 to %arg3 pos0 %arg4 see sink(4) | window(8) ends %arg5, %arg6 if %arg7 :
  %1 = attn.mask %s at %at tokens %first to %end pos0 %pos0 see sink(4) | window(8) ends %sink, %window if %partial : !at, !s
  // CHECK: attn.mask {{.*}} see causal if %arg7 begin %arg2 front : <[query 16], i32>,
  %front = attn.mask %s at %at tokens %first to %end pos0 %pos0 see causal if %partial begin %first front : !at, !s
  // CHECK: attn.mask {{.*}} see causal if %arg7 begin %arg2 behind : <[query 16], i32>,
  %behind = attn.mask %front at %at tokens %first to %end pos0 %pos0 see causal if %partial begin %first behind : !at, !s
  // CHECK: attn.list_mask %arg0 tokens %arg2 rows %arg3 to %arg4 in %arg8 from %arg5 group 4 pitch 128 : <i32>, <[query 16, key 32], f32>
  %2 = attn.list_mask %s tokens %first rows %end to %pos0 in %words from %sink group 4 pitch 128 : !tile.buffer<i32>, !s
  return
}

// CHECK-LABEL: func.func @softmax_step(
func.func @softmax_step(%s: !s, %max: !row, %sum: !sum, %log2: f32, %lift: !row, %o: !o) {
  // CHECK: %[[DECAY:[^,]*]], %[[MOVED:[^,]*]] = attn.softmax_step %arg0, %arg1, %arg2 unit %arg3 : <[query 16, key 32], f32>, <[query 16], f32>, <[query 16], f32, partial> -> <[query 16], f32>, <[query 16], f32, partial>, <[query 16, key 32], f32>, !tile.fragment<[query 16], f32>, i1
  %0:5 = attn.softmax_step %s, %max, %sum unit %log2 : !s, !row, !sum -> !row, !sum, !s, !row, i1
  // CHECK: attn.softmax_step %arg0, %arg1, %arg2 unit %arg3 lift %arg4 : <[query 16, key 32], f32>, <[query 16], f32>, <[query 16], f32, partial>, !tile.fragment<[query 16], f32> ->
  %1:5 = attn.softmax_step %s, %max, %sum unit %log2 lift %lift : !s, !row, !sum, !row -> !row, !sum, !s, !row, i1
  // CHECK: attn.softmax_step fixed %arg0, %arg1, %arg2 unit %arg3 : <[query 16, key 32], f32>, <[query 16], f32>, <[query 16], f32, partial> -> <[query 16], f32>, <[query 16], f32, partial>, <[query 16, key 32], f32>{{$}}
  %2:3 = attn.softmax_step fixed %s, %max, %sum unit %log2 : !s, !row, !sum -> !row, !sum, !s
  // CHECK: attn.rescale %arg5 by %[[DECAY]] if %[[MOVED]] : <[query 16, feature 64], f32>, <[query 16], f32>
  %3 = attn.rescale %o by %0#3 if %0#4 : !o, !row
  return
}

// CHECK-LABEL: func.func @finished_rows(
func.func @finished_rows(%s: !s, %lse: !row, %log2: f32, %dp: !s, %delta: !row, %slopes: !s) {
  // CHECK: %[[P:.*]] = attn.weights %arg0 less %arg1 unit %arg2 : <[query 16], f32>, <[query 16, key 32], f32>
  %p = attn.weights %s less %lse unit %log2 : !row, !s
  // CHECK: attn.score_grad %[[P]], %arg3 : !tile.fragment<[query 16, key 32], f32> less %arg4 : !tile.fragment<[query 16], f32> times %arg5 : !tile.fragment<[query 16, key 32], f32> : <[query 16, key 32], f32>
  %0 = attn.score_grad %p, %dp : !s less %delta : !row times %slopes : !s : !s
  // CHECK: attn.score_grad %[[P]], %arg3 : !tile.fragment<[query 16, key 32], f32> : <[query 16, key 32], f32>
  %1 = attn.score_grad %p, %dp : !s : !s
  // CHECK: attn.score_grad %[[P]] times %arg5 : !tile.fragment<[query 16, key 32], f32> : <[query 16, key 32], f32>
  %2 = attn.score_grad %p times %slopes : !s : !s
  return
}

// CHECK-LABEL: func.func @scaled_values(
func.func @scaled_values(%scales: !half, %log2: f32, %p: !s) {
  // CHECK: attn.lift %arg0 unit %arg1 of !tile.fragment<[query 16, key 32], f32> : <[key 32], f16> -> <[query 16], f32>
  %0 = attn.lift %scales unit %log2 of !s : !half -> !row
  // CHECK: attn.scale_weights %arg2 by %arg0 : <[key 32], f16>, <[query 16, key 32], f32>
  %1 = attn.scale_weights %p by %scales : !half, !s
  return
}
