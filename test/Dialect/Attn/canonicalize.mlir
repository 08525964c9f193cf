// RUN: attn-opt %s --canonicalize | FileCheck %s

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!state = !attn.state<heads = 4, value_dim = 64>

// CHECK-LABEL: @merge_with_identity
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[S:.*]]: !attn.state
func.func @merge_with_identity(%q: !query, %s: !state) -> (!state, !state) {
  %i = attn.init %q : !query -> !state
  %a = attn.merge %s, %i : !state
  %b = attn.merge %i, %s : !state
  // CHECK-NEXT: return %[[S]], %[[S]]
  return %a, %b : !state, !state
}

// A sink logit is a token: its state is not the identity.
// CHECK-LABEL: @merge_with_sinks
func.func @merge_with_sinks(%q: !query, %s: !state, %sinks: tensor<4xf32>) -> !state {
  %i = attn.init %q sinks %sinks : !query, tensor<4xf32> -> !state
  // CHECK: attn.merge
  %a = attn.merge %s, %i : !state
  return %a : !state
}

// CHECK-LABEL: @empty_region
// CHECK-SAME: %[[S:[^ ]*]]: !attn.state
func.func @empty_region(%s: !state, %q: !query, %kv: !kv, %c: tensor<4xi32>) -> !state {
  %a = attn.update %s, %q, %kv see window(0) scale 1.0 : !query, !kv -> !state
  %b = attn.update %a, %q, %kv see causal & (recent(3) & sink(0)) scale 1.0 : !query, !kv -> !state
  %x = attn.update %b, %q, %kv see sink(0) | recent(0) scale 1.0 : !query, !kv -> !state
  %d = attn.update %x, %q, %kv see all heads %c {a: see sink(0), b: see window(0)} scale 1.0
      : !query, !kv, tensor<4xi32> -> !state
  // CHECK-NEXT: return %[[S]]
  return %d : !state
}

// CHECK-LABEL: @continue_chain
// CHECK-SAME: %[[S:[^ ]*]]: !attn.state
func.func @continue_chain(%s: !state, %q: !query, %a: !kv, %b: !kv) -> !state {
  %i = attn.init %q : !query -> !state
  %u = attn.update %i, %q, %a see all scale 1.0 : !query, !kv -> !state
  %v = attn.update %u, %q, %b see causal scale 1.0 : !query, !kv -> !state
  // CHECK-NEXT: %[[U:.*]] = attn.update %[[S]], {{.*}} see all
  // CHECK-NEXT: %[[V:.*]] = attn.update %[[U]], {{.*}} see causal
  // CHECK-NEXT: return %[[V]]
  %m = attn.merge %s, %v : !state
  return %m : !state
}

// Either side may be the chain.
// CHECK-LABEL: @continue_chain_left
// CHECK-SAME: %[[S:[^ ]*]]: !attn.state
func.func @continue_chain_left(%s: !state, %q: !query, %a: !kv) -> !state {
  %i = attn.init %q : !query -> !state
  %u = attn.update %i, %q, %a see all scale 1.0 : !query, !kv -> !state
  // CHECK-NEXT: %[[U:.*]] = attn.update %[[S]]
  // CHECK-NEXT: return %[[U]]
  %m = attn.merge %u, %s : !state
  return %m : !state
}

// A state with another use stays a separate state.
// CHECK-LABEL: @shared_chain
func.func @shared_chain(%s: !state, %q: !query, %a: !kv) -> (!state, !state) {
  %i = attn.init %q : !query -> !state
  // CHECK: %[[U:.*]] = attn.update
  %u = attn.update %i, %q, %a see all scale 1.0 : !query, !kv -> !state
  // CHECK: %[[M:.*]] = attn.merge %{{.*}}, %[[U]]
  %m = attn.merge %s, %u : !state
  // CHECK: return %[[U]], %[[M]]
  return %u, %m : !state, !state
}

// Constants leave the score region and may be used from outside.
// CHECK-LABEL: @score_constants
func.func @score_constants(%s: !state, %q: !query, %a: !kv) -> !state {
  // CHECK: arith.constant 2.0
  // CHECK: attn.update
  %u = attn.update %s, %q, %a see all scale 1.0 score {
    ^bb0(%x: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %two = arith.constant 2.0 : f32
      %t = arith.mulf %x, %two : f32
      attn.yield %t : f32
    } : !query, !kv -> !state
  return %u : !state
}
