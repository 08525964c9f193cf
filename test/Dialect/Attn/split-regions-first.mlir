// RUN: attn-opt %s --attn-split-regions --canonicalize | FileCheck %s

// For two attentions, one of them over the first region of the other, the state is finished twice.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

func.func @both(%q: !query {attn.name = "q"}, %near: !kv {attn.name = "near"}, %rest: !kv {attn.name = "rest"}) -> (!query, !lse, !query, !lse) {
  %o, %l = attn.attend %q over (%near see causal and (sink(4) | recent(9))), (%rest see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%near see causal and (sink(4) | recent(9))) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// CHECK-LABEL: func.func @both
// CHECK-SAME: (%[[Q:.*]]: tensor<?x8x64xbf16> {{.*}}, %[[NEAR:.*]]: !attn.kv{{.*}}, %[[REST:.*]]: !attn.kv
// CHECK-NEXT: %[[INIT:.*]] = attn.init %[[Q]]
// CHECK-NEXT: %[[FIRST:.*]] = attn.update %[[INIT]], %[[Q]], %[[NEAR]] see causal and (sink(4) | recent(9))
// CHECK-NEXT: %[[N:.*]], %[[M:.*]] = attn.finish %[[FIRST]] {attn.first}
// CHECK-NEXT: %[[ALL:.*]] = attn.update %[[FIRST]], %[[Q]], %[[REST]] see causal
// CHECK-NEXT: %[[O:.*]], %[[L:.*]] = attn.finish %[[ALL]] :
// CHECK-NEXT: return %[[O]], %[[L]], %[[N]], %[[M]]
