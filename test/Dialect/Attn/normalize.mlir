// RUN: attn-opt %s --attn-normalize | FileCheck %s

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>

// CHECK-LABEL: @scale
func.func @scale(%q: !query, %kv: !kv) -> (!query, !query) {
  // CHECK: see causal) scale 0.125 :
  %a = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  // CHECK: see causal) scale 0.5 :
  %b = attn.attend %q over (%kv see causal) scale 0.5 : !query, !kv -> !query
  return %a, %b : !query, !query
}

// CHECK-LABEL: @visibility
func.func @visibility(%q: !query, %kv: !kv) {
  // CHECK: (%{{.*}} see window(7))
  %0 = attn.attend %q over (%kv see causal & window(7)) : !query, !kv -> !query
  // CHECK: (%{{.*}} see sink(4) and recent(9))
  %1 = attn.attend %q over (%kv see all & (sink(4) & recent(9)) & causal) : !query, !kv -> !query
  // CHECK: (%{{.*}} see causal)
  %2 = attn.attend %q over (%kv see window(5) | causal | recent(9) | sink(0)) : !query, !kv -> !query
  // CHECK: (%{{.*}} see causal and (sink(4) | recent(9)))
  %3 = attn.attend %q over (%kv see causal & (sink(4) | recent(9))) : !query, !kv -> !query
  // CHECK: (%{{.*}} see all)
  %4 = attn.attend %q over (%kv see causal | all) : !query, !kv -> !query
  // Two sizes are never compared: they are run-time values, and the kernel serves any.
  // CHECK: (%{{.*}} see window(4) and window(9))
  %5 = attn.attend %q over (%kv see window(4) & window(9)) : !query, !kv -> !query
  // CHECK: (%{{.*}} see sink(4))
  %6 = attn.attend %q over (%kv see sink(4) & (sink(4) | recent(9))) : !query, !kv -> !query
  // CHECK: (%{{.*}} see window(3) | sink(2))
  %7 = attn.attend %q over (%kv see window(3) | (sink(2) | window(3) & sink(5))) : !query, !kv -> !query
  return
}

// CHECK-LABEL: @head_classes
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[B:.*]]: !attn.kv<{{.*}}>, %[[C:.*]]: tensor<4xi32>
func.func @head_classes(%q: !query, %a: !kv, %b: !kv, %c: tensor<4xi32>) {
  // CHECK: over (%[[A]] see causal) heads %[[C]] {x: see all, y: see window(7)} scale
  %0 = attn.attend %q over (%a see causal) heads %c {x: see all | sink(3), y: see window(7) & causal}
      : !query, !kv, tensor<4xi32> -> !query
  // Classes with equal visibility of all regions are removed.
  // CHECK: over (%[[A]] see window(7)), (%[[B]] see sink(3) and window(7)) scale
  %1 = attn.attend %q over (%a see all), (%b see sink(3)) heads %c {x: see window(7), y: see window(7) & causal}
      : !query, !kv, !kv, tensor<4xi32> -> !query
  // CHECK: over (%[[A]] see window(9)) scale
  %2 = attn.attend %q over (%a see window(9)) heads %c {x: see all, y: see causal} : !query, !kv, tensor<4xi32> -> !query
  // CHECK: over (%[[A]] see window(9)), (%[[B]] see all) heads %[[C]] {x: see all, y: see causal} scale
  %3 = attn.attend %q over (%a see window(9)), (%b see all) heads %c {x: see all, y: see causal}
      : !query, !kv, !kv, tensor<4xi32> -> !query
  // A single class is removed, and so is a region that no class sees; the last region then needs no classes.
  // CHECK: over (%[[A]] see recent(5)) scale
  %4 = attn.attend %q over (%a see causal) heads %c {x: see recent(5)} : !query, !kv, tensor<4xi32> -> !query
  // CHECK: over (%[[A]] see sink(0)) scale
  %5 = attn.attend %q over (%a see sink(0)), (%b see causal) heads %c {x: see window(0), y: see sink(0)}
      : !query, !kv, !kv, tensor<4xi32> -> !query
  return
}

!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
// CHECK-LABEL: @class_regions
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x4x64xf16>, %[[A:[a-z0-9]+]]: !attn.kv<{{.*}}>, %[[B:[a-z0-9]+]]: !attn.kv<{{.*}}>, %[[C:[a-z0-9]+]]: !attn.kv<{{.*}}>, %[[D:[a-z0-9]+]]: tensor<4xi32>
func.func @class_regions(%q: !query, %a: !kv, %b: !part, %c: !part, %d: tensor<4xi32>) {
  // Classes with equal visibility stay if one has a region of its own.
  // CHECK: over (%[[A]] see causal), (%[[B]] see causal for x) heads %[[D]] {x: see all, y: see all} scale
  %0 = attn.attend %q over (%a see causal), (%b see causal for x) heads %d {x: see all, y: see all | sink(3)}
      : !query, !kv, !part, tensor<4xi32> -> !query
  // The region of a class that sees nothing is removed, whatever the others see.
  // CHECK: over (%[[A]] see causal), (%[[C]] see all for y) heads %[[D]] {x: see sink(0), y: see all} scale
  %1 = attn.attend %q over (%a see causal), (%b see causal for x), (%c see all for y)
      heads %d {x: see sink(0), y: see all} : !query, !kv, !part, !part, tensor<4xi32> -> !query
  // Without the last region of one class, classes with equal visibility are removed.
  // CHECK: over (%[[A]] see causal) scale
  %2 = attn.attend %q over (%b see sink(0) for x), (%a see causal) heads %d {x: see all, y: see all}
      : !query, !part, !kv, tensor<4xi32> -> !query
  return
}

// CHECK-LABEL: @empty
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x64xf16>, %[[A:.*]]: !attn.kv<{{.*}}>, %[[B:.*]]: !attn.kv<
func.func @empty(%q: !query, %a: !kv, %b: !kv) {
  // CHECK: attn.attend %[[Q]] over (%[[B]] see causal) scale
  %0 = attn.attend %q over (%a see sink(0) & causal), (%b see causal) : !query, !kv, !kv -> !query
  // The last region stays, so that the operation is well formed.
  // CHECK: attn.attend %[[Q]] over (%[[A]] see window(0)) scale
  %1 = attn.attend %q over (%a see window(0)), (%b see sink(0) & causal) : !query, !kv, !kv -> !query
  return
}
