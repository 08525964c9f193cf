// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @scores_axes(%q: !tile.fragment<[query 16, feature 64], f16>, %k: !tile.shared<key 32, feature 64, f16>) {
  // expected-error @below {{result #0 must be the scores, f32 with the axes query and key, but got '!tile.fragment<[query 16, feature 32], f32>'}}
  %0 = attn.scores mma %q, %k : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

func.func @scores_element(%q: !tile.fragment<[query 16, feature 64], f16>, %k: !tile.shared<key 32, feature 64, f16>) {
  // expected-error @below {{result #0 must be the scores, f32 with the axes query and key, but got '!tile.fragment<[query 16, key 32], f16>'}}
  %0 = attn.scores mma %q, %k : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> !tile.fragment<[query 16, key 32], f16>
  return
}

// -----

func.func @scores_rank(%q: !tile.fragment<[query 16, feature 64], f16>, %k: !tile.shared<key 32, feature 64, f16>) {
  // expected-error @below {{result #0 must be the scores, f32 with the axes query and key, but got '!tile.fragment<[query 16], f32>'}}
  %0 = attn.scores mma %q, %k : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> !tile.fragment<[query 16], f32>
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
func.func @scores_begin(%q: !tile.fragment<[query 16, feature 64], f16>, %k: !tile.shared<key 32, feature 64, f16>, %begin: !tile.fragment<[key 32, query 16], f32>) {
  // expected-error @below {{expected the addend to have the type of the scores, got '!tile.fragment<[key 32, query 16], f32>'}}
  %0 = attn.scores mma %q, %k plus %begin : !tile.fragment<[key 32, query 16], f32> : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
func.func @scores_line(%q: !tile.fragment<[query 16, feature 64], f16>, %k: !tile.shared<key 32, feature 64, f16>, %line: i32) {
  // expected-error @below {{expected a line of a shared tile, and the left operand is a fragment}}
  %0 = attn.scores mma %q, %k at %line : !tile.fragment<[query 16, feature 64], f16>, !tile.shared<key 32, feature 64, f16> -> !s
  return
}

// -----

!s = !tile.fragment<[key 32, query 16], f32>
func.func @scores_line_of_tokens(%q: !tile.shared<query 16, feature 64, f16>, %k: !tile.fragment<[key 32, feature 64], f16>, %line: i32) {
  // expected-error @below {{expected a line of a shared tile, and the left operand is a fragment}}
  %0 = attn.scores mma %q, %k at %line : !tile.shared<query 16, feature 64, f16>, !tile.fragment<[key 32, feature 64], f16> -> !s
  return
}

// -----

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!token = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
func.func @group_scores_axes(%q: !q, %k: !k, %c: !token, %n: !row) {
  // expected-error @below {{result #0 must be the scores, f32 with the axes query and key, but got '!tile.fragment<[query 16, feature 32], f32>'}}
  %0 = "attn.group_scores"(%q, %k, %c, %c, %n) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (!q, !k, !token, !token, !row) -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!s = !tile.fragment<[query 16, key 32], f32>
func.func @group_scores_none(%q: !q, %k: !k) {
  // expected-error @below {{expected a scale for each group, and a zero and a sum of rows or neither, got 0, 0 and 0}}
  %0 = "attn.group_scores"(%q, %k) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0>}> : (!q, !k) -> !s
  return
}

// -----

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!token = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
!s = !tile.fragment<[query 16, key 32], f32>
func.func @group_scores_zeros(%q: !q, %k: !k, %c: !token, %n: !row) {
  // expected-error @below {{expected a scale for each group, and a zero and a sum of rows or neither, got 2, 1 and 2}}
  %0 = "attn.group_scores"(%q, %k, %c, %c, %c, %n, %n) <{group = 32 : i64, operandSegmentSizes = array<i32: 1, 1, 2, 1, 2, 0>}> : (!q, !k, !token, !token, !token, !row, !row) -> !s
  return
}

// -----

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!token = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
!s = !tile.fragment<[query 16, key 32], f32>
func.func @group_scores_sums(%q: !q, %k: !k, %c: !token, %n: !row) {
  // expected-error @below {{expected a scale for each group, and a zero and a sum of rows or neither, got 2, 2 and 1}}
  %0 = "attn.group_scores"(%q, %k, %c, %c, %c, %c, %n) <{group = 32 : i64, operandSegmentSizes = array<i32: 1, 1, 2, 2, 1, 0>}> : (!q, !k, !token, !token, !token, !token, !row) -> !s
  return
}

// -----

!q = !tile.fragment<[query 16, feature 64], f16>
!k = !tile.fragment<[key 32, feature 64], f16>
!token = !tile.fragment<[key 32], f16>
!row = !tile.fragment<[query 16], f32>
!s = !tile.fragment<[query 16, key 32], f32>
func.func @group_scores_group(%q: !q, %k: !k, %c: !token, %n: !row) {
  // expected-error @below {{expected the number of features of a group, as there are several}}
  %0 = "attn.group_scores"(%q, %k, %c, %c, %c, %c, %n, %n) <{operandSegmentSizes = array<i32: 1, 1, 2, 2, 2, 0>}> : (!q, !k, !token, !token, !token, !token, !row, !row) -> !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
func.func @accumulate_sum(%p: !s, %v: !tile.shared<key 32, feature 64, f16>, %o: !s) {
  // expected-error @below {{operand #2 must be the sum so far, f32 with an axis of features, but got '!tile.fragment<[query 16, key 32], f32>'}}
  %0 = attn.accumulate mma %p, %v into %o : !s, !tile.shared<key 32, feature 64, f16> -> !s
  return
}

// -----

func.func @accumulate_rank(%p: !tile.fragment<[query 16, key 32], f32>, %v: !tile.shared<key 32, feature 64, f16>, %o: !tile.fragment<[feature 64], f32>) {
  // expected-error @below {{operand #2 must be the sum so far, f32 with an axis of features, but got '!tile.fragment<[feature 64], f32>'}}
  %0 = attn.accumulate mma %p, %v into %o : !tile.fragment<[query 16, key 32], f32>, !tile.shared<key 32, feature 64, f16> -> !tile.fragment<[feature 64], f32>
  return
}

// -----

!o = !tile.fragment<[query 16, feature 64], f32>
func.func @accumulate_pairs(%p: !tile.fragment<[query 16, key 32], f16>, %v: !tile.shared<key 32, feature 64, f16>, %o: !o) {
  // expected-error @below {{operand #0 must be a number of each pair, f32 with the axes query and key, but got '!tile.fragment<[query 16, key 32], f16>'}}
  %0 = attn.accumulate mma %p, %v into %o : !tile.fragment<[query 16, key 32], f16>, !tile.shared<key 32, feature 64, f16> -> !o
  return
}

// -----

!half = !tile.fragment<[key 32], f16>
func.func @dequantize_zeros(%codes: !tile.shared<key 32, feature 64, i4>, %c: !half) {
  // expected-error @below {{expected a zero for each scale, got 2 and 1}}
  %0 = attn.dequantize %codes scales %c, %c : !half, !half zeros %c : !half per 32 : !tile.shared<key 32, feature 64, i4> -> !tile.fragment<[feature 64, key 32], f16>
  return
}

// -----

!half = !tile.fragment<[key 32], f16>
func.func @dequantize_tiny(%codes: !tile.shared<key 32, feature 64, i4>, %c: !half) {
  // expected-error @below {{expected no scales for tiny elements}}
  %0 = attn.dequantize %codes scales %c : !half zeros %c : !half tiny : !tile.shared<key 32, feature 64, i4> -> !tile.fragment<[feature 64, key 32], f16>
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @score_fn_arguments(%s: !s, %scale: f32, %at: !at, %i: i32) {
  // expected-error @below {{expected a region of a score, the query head and two positions that ends with attn.yield}}
  %0 = attn.score_fn %s times %scale heads %at at %at tokens %i pos0 %i {
  ^bb0(%x: f32, %h: i32, %q: i32):
    attn.yield %x : f32
  } : !s, !at, !at -> !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @score_fn_end(%s: !s, %scale: f32, %at: !at, %i: i32) {
  // expected-error @below {{expected a region of a score, the query head and two positions that ends with attn.yield}}
  %0 = attn.score_fn %s times %scale heads %at at %at tokens %i pos0 %i {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    llvm.unreachable
  } : !s, !at, !at -> !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @score_fn_reads(%s: !s, %scale: f32, %at: !at, %i: i32, %table: !tile.buffer<f32>, %place: i64) {
  // expected-error @below {{expected numbers of the region's 1 reads, got 1}}
  %0:3 = attn.score_fn %s times %scale heads %at at %at tokens %i pos0 %i attributes {reads = array<i64: 1>} {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    %y = tile.read %table[%place] : <f32> -> f32
    attn.yield %y : f32
  } : !s, !at, !at -> !s, !s, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @score_fn_negative(%s: !s, %scale: f32, %at: !at, %i: i32, %table: !tile.buffer<f32>, %place: i64) {
  // expected-error @below {{expected numbers of the region's 1 reads, got -1}}
  %0:3 = attn.score_fn %s times %scale heads %at at %at tokens %i pos0 %i attributes {reads = array<i64: -1>} {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    %y = tile.read %table[%place] : <f32> -> f32
    attn.yield %y : f32
  } : !s, !at, !at -> !s, !s, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @score_fn_results(%s: !s, %scale: f32, %at: !at, %i: i32) {
  // expected-error @below {{expected scores alone, or with their derivative and that of each read, got 3 results}}
  %0:3 = attn.score_fn %s times %scale heads %at at %at tokens %i pos0 %i {
  ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
    attn.yield %x : f32
  } : !s, !at, !at -> !s, !s, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @mask_ends(%s: !s, %at: !at, %i: i32) {
  // expected-error @below {{expected 2 ends, as many as the visibility has sized terms, got 1}}
  %0 = attn.mask %s at %at tokens %i to %i pos0 %i see sink(4) | window(8) ends %i : !at, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @mask_sides(%s: !s, %at: !at, %i: i32, %if: i1) {
  // expected-error @below {{expected front or behind, or neither for both sides}}
  %0 = attn.mask %s at %at tokens %i to %i pos0 %i see causal if %if begin %i front behind : !at, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @mask_side_of_terms(%s: !s, %at: !at, %i: i32, %if: i1) {
  // expected-error @below {{expected one interval, as it hides one side, got}}
  %0 = attn.mask %s at %at tokens %i to %i pos0 %i see sink(4) | window(8) ends %i, %i if %if begin %i front : !at, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!at = !tile.fragment<[query 16], i32>
func.func @mask_side_without_begin(%s: !s, %at: !at, %i: i32, %if: i1) {
  // expected-error @below {{expected a condition and a begin, as it hides one side}}
  %0 = attn.mask %s at %at tokens %i to %i pos0 %i see causal if %if behind : !at, !s
  return
}

// -----

!s = !tile.fragment<[query 16, feature 32], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_scores(%s: !s, %row: !row, %log2: f32) {
  // expected-error @below {{operand #0 must be the tile's scores, f32 with the axes query and key, but got '!tile.fragment<[query 16, feature 32], f32>'}}
  %0:5 = attn.softmax_step %s, %row, %row unit %log2 : !s, !row, !row -> !row, !row, !s, !row, i1
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_decay(%s: !s, %row: !row, %log2: f32) {
  // expected-error @below {{expected a decay and whether it is not 1, unless units are fixed}}
  %0:3 = attn.softmax_step %s, %row, %row unit %log2 : !s, !row, !row -> !row, !row, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_moved(%s: !s, %row: !row, %log2: f32) {
  // expected-error @below {{expected a decay and whether it is not 1, unless units are fixed}}
  %0:4 = "attn.softmax_step"(%s, %row, %row, %log2) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (!s, !row, !row, f32) -> (!row, !row, !s, !row)
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_fixed(%s: !s, %row: !row, %log2: f32) {
  // expected-error @below {{expected a decay and whether it is not 1, unless units are fixed}}
  %0:5 = attn.softmax_step fixed %s, %row, %row unit %log2 : !s, !row, !row -> !row, !row, !s, !row, i1
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_lift(%s: !s, %row: !row, %log2: f32) {
  // expected-error @below {{expected a decay and whether it is not 1, unless units are fixed}}
  %0:3 = attn.softmax_step fixed %s, %row, %row unit %log2 lift %row : !s, !row, !row, !row -> !row, !row, !s
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!other = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
func.func @softmax_step_lift_of_other_pairs(%s: !s, %row: !row, %log2: f32, %lift: !other) {
  // expected-error @below {{expected a lift per row, or of the type of scores, got '!tile.fragment<[query 16, key 64], f32>'}}
  %0:5 = attn.softmax_step %s, %row, %row unit %log2 lift %lift : !s, !row, !row, !other -> !row, !row, !s, !row, i1
  return
}

// -----

!s = !tile.fragment<[query 16, key 32], f32>
!other = !tile.fragment<[query 16, key 64], f32>
func.func @lift_of_other_pairs(%scales: !tile.fragment<[key 64], f32>, %log2: f32) {
  // expected-error @below {{expected a result per row, or of the type of scores, got '!tile.fragment<[query 16, key 64], f32>'}}
  %0 = attn.lift %scales unit %log2 of !s : !tile.fragment<[key 64], f32> -> !other
  return
}
