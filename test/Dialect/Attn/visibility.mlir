// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s

// `and` binds tighter than `|`; `&`, `*` and `and` are equal, and so are `|` and `or`.
// CHECK: t.a = #attn.visibility<all>
// CHECK-SAME: t.b = #attn.visibility<causal and sink(4) | recent(9)>
// CHECK-SAME: t.c = #attn.visibility<causal and (sink(4) | recent(9))>
// CHECK-SAME: t.d = #attn.visibility<causal and (sink(4) and window(0))>
// CHECK-SAME: t.e = #attn.visibility<sink(4) | (sink(5) | sink(6))>
// CHECK-SAME: t.f = #attn.visibility<sink(2147483647)>
// CHECK-SAME: t.g = "a & b"
// CHECK-SAME: t.h = #attn.visibility<window(3, 2) | causal and chunk(8)>
module attributes {
  t.a = #attn.visibility<all>,
  t.b = #attn.visibility<causal & sink(4) | recent(9)>, // a & in a comment, and a " too
  t.c = #attn.visibility<causal * (sink(4) or recent(9))>,
  t.d = #attn.visibility<(causal) and ((sink(4)) & window(0))>,
  t.e = #attn.visibility<sink(4) | (sink(5) | sink(6))>,
  t.f = #attn.visibility<sink(2147483647)>,
  t.g = "a & b",
  t.h = #attn.visibility<window(3, 2) | causal & chunk(8)>
} {}
