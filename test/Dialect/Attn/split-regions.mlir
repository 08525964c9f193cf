// RUN: attn-opt %s --attn-split-regions | FileCheck %s
// RUN: attn-opt %s --attn-split-regions --canonicalize | FileCheck %s --check-prefix=CHAIN

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!lse = tensor<?x4xf32>

// CHECK-LABEL: @single
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[KV:.*]]: !attn.kv
func.func @single(%q: !query, %kv: !kv) -> !query {
  // CHECK-NEXT: %[[I:.*]] = attn.init %[[Q]] :
  // CHECK-NEXT: %[[U:.*]] = attn.update %[[I]], %[[Q]], %[[KV]] see causal scale 0.125 :
  // CHECK-NEXT: %[[O:.*]] = attn.finish %[[U]]
  // CHECK-NEXT: return %[[O]]
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return %o : !query
}

// The sink logits start one state, the score region goes to every update.
// CHECK-LABEL: @several
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[B:.*]]: !attn.kv<{{.*}}>, %[[C:.*]]: !attn.kv<{{.*}}>, %[[S:.*]]: tensor<4xf32>
func.func @several(%q: !query, %a: !kv, %b: !kv, %c: !kv, %sinks: tensor<4xf32>) -> (!query, !lse) {
  // CHECK-NEXT: %[[I0:.*]] = attn.init %[[Q]] sinks %[[S]]
  // CHECK-NEXT: %[[U0:.*]] = attn.update %[[I0]], %[[Q]], %[[A]] see all scale 2.0 score {
  // CHECK: %[[I1:.*]] = attn.init %[[Q]] :
  // CHECK-NEXT: %[[U1:.*]] = attn.update %[[I1]], %[[Q]], %[[B]] see causal scale 2.0 score {
  // CHECK: math.absf
  // CHECK: %[[M1:.*]] = attn.merge %[[U0]], %[[U1]]
  // CHECK-NEXT: %[[I2:.*]] = attn.init %[[Q]] :
  // CHECK-NEXT: %[[U2:.*]] = attn.update %[[I2]], %[[Q]], %[[C]] see recent(5) scale 2.0 score {
  // CHECK: %[[M2:.*]] = attn.merge %[[M1]], %[[U2]]
  // CHECK-NEXT: %[[O:.*]], %[[LSE:.*]] = attn.finish %[[M2]]
  // CHECK-NEXT: return %[[O]], %[[LSE]]

  // Canonicalization joins the three states into one chain.
  // CHAIN-LABEL: @several
  // CHAIN: %[[I:.*]] = attn.init {{.*}} sinks
  // CHAIN-NOT: attn.init
  // CHAIN: %[[U0:.*]] = attn.update %[[I]], {{.*}} see all
  // CHAIN: %[[U1:.*]] = attn.update %[[U0]], {{.*}} see causal
  // CHAIN: %[[U2:.*]] = attn.update %[[U1]], {{.*}} see recent(5)
  // CHAIN-NOT: attn.merge
  // CHAIN: attn.finish %[[U2]]
  %o, %lse = attn.attend %q over (%a see all), (%b see causal), (%c see recent(5)) scale 2.0 sinks %sinks score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %t = math.absf %s : f32
      attn.yield %t : f32
    } : !query, !kv, !kv, !kv, tensor<4xf32> -> !query, !lse
  return %o, %lse : !query, !lse
}

// Every update carries the classes.
// CHECK-LABEL: @head_classes
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[B:.*]]: !attn.kv<{{.*}}>, %[[C:.*]]: tensor<4xi32>
func.func @head_classes(%q: !query, %a: !kv, %b: !kv, %c: tensor<4xi32>) -> !query {
  // CHECK: attn.update %{{.*}}, %[[Q]], %[[A]] see all heads %[[C]] {x: see all, y: see window(7)} scale
  // CHECK: attn.update %{{.*}}, %[[Q]], %[[B]] see causal heads %[[C]] {x: see all, y: see window(7)} scale
  %o = attn.attend %q over (%a see all), (%b see causal) heads %c {x: see all, y: see window(7)}
      : !query, !kv, !kv, tensor<4xi32> -> !query
  return %o : !query
}

// An update has the class of its region.
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
// CHECK-LABEL: @class_regions
func.func @class_regions(%q: !query, %a: !kv, %b: !part, %c: tensor<4xi32>) -> !query {
  // CHECK: see all heads
  // CHECK: see causal for y heads %{{.*}} {x: see all, y: see window(7)} scale
  %o = attn.attend %q over (%a see all), (%b see causal for y) heads %c {x: see all, y: see window(7)}
      : !query, !kv, !part, tensor<4xi32> -> !query
  return %o : !query
}

// The gate is the finish's.
// CHECK-LABEL: @gate
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[G:.*]]: tensor<?x4x64xf16>
func.func @gate(%q: !query, %a: !kv, %g: !query) -> !query {
  // CHECK: %[[U:.*]] = attn.update
  // CHECK: attn.finish %[[U]] gate %[[G]] : !attn.state<heads = 4, value_dim = 64> gate tensor<?x4x64xf16> -> tensor<?x4x64xf16>
  %o = attn.attend %q over (%a see all) gate %g : !query, !kv, !query -> !query
  return %o : !query
}

// So is the scale of outputs.
// CHECK-LABEL: @output_scale
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[S:.*]]: tensor<1xf32>
func.func @output_scale(%q: !query, %a: !kv, %s: tensor<1xf32>) -> tensor<?x4x64xf8E4M3FN> {
  // CHECK: %[[U:.*]] = attn.update
  // CHECK: attn.finish %[[U]] output_scale %[[S]] : !attn.state<heads = 4, value_dim = 64> output_scale tensor<1xf32> -> tensor<?x4x64xf8E4M3FN>
  %o = attn.attend %q over (%a see all) output_scale %s : !query, !kv, tensor<1xf32> -> tensor<?x4x64xf8E4M3FN>
  return %o : tensor<?x4x64xf8E4M3FN>
}

// Scales that are made of outputs are a result of the finish.
// CHECK-LABEL: @output_scales
func.func @output_scales(%q: !query, %a: !kv) -> (tensor<?x4x64xf8E4M3FN>, tensor<?x4xf32>) {
  // CHECK: %[[U:.*]] = attn.update
  // CHECK: %[[O:.*]], %[[S:.*]] = attn.finish %[[U]] : !attn.state<heads = 4, value_dim = 64> -> tensor<?x4x64xf8E4M3FN> output_scales tensor<?x4xf32>
  // CHECK: return %[[O]], %[[S]]
  %o, %s = attn.attend %q over (%a see all) : !query, !kv -> tensor<?x4x64xf8E4M3FN> output_scales tensor<?x4xf32>
  return %o, %s : tensor<?x4x64xf8E4M3FN>, tensor<?x4xf32>
}
