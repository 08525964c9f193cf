// RUN: attn-opt %s -split-input-file -verify-diagnostics

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @heads(%q: !query, %kv: !kv, %classes: tensor<8xi32>) {
  // expected-error @below {{expected the head classes to be assigned by 'tensor<4xi32>', one element per KV head, got 'tensor<8xi32>'}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all} : !query, !kv, tensor<8xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @element(%q: !query, %kv: !kv, %classes: tensor<4xi64>) {
  // expected-error @below {{expected the head classes to be assigned by 'tensor<4xi32>', one element per KV head, got 'tensor<4xi64>'}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all} : !query, !kv, tensor<4xi64> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @no_classes(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected from 1 to 16 head classes, got 0; nearest legal: 1}}
  %o = attn.attend %q over (%kv see all) heads %classes {} : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @many(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected from 1 to 16 head classes, got 17; nearest legal: 16}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all, b: see all, c: see all, d: see all, e: see all,
      f: see all, g: see all, h: see all, i: see all, j: see all, k: see all, l: see all, m: see all, n: see all,
      o: see all, p: see all, q: see all} : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @twice(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected head classes with different names, got 'a' twice}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all, b: see causal, a: see causal}
      : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @nameless(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected head classes with names, got an empty one}}
  %o = attn.attend %q over (%kv see all) heads %classes {"": see all} : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @size(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected the size of recent to be from 0 to 2147483647, got -3; nearest legal: 0}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see recent(-3)} : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @see(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected 'see'}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: all} : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @types(%q: !query, %kv: !kv, %classes: tensor<4xi32>, %sinks: tensor<8xf32>) {
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all} sinks %sinks
      // expected-error @below {{expected 4 operand types (the query, 1 regions, the head classes and the sink logits), got 3}}
      : !query, !kv, tensor<8xf32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @only_the_tensor(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected head classes and the tensor that assigns heads to them, got only the tensor}}
  %o = "attn.attend"(%q, %kv, %classes) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0>, visibility = [#attn.visibility<all>]}>
      ({}) : (!query, !kv, tensor<4xi32>) -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!state = !attn.state<heads = 8, value_dim = 64>
func.func @only_the_classes(%q: !query, %kv: !kv, %s: !state) {
  // expected-error @below {{expected head classes and the tensor that assigns heads to them, got only the classes}}
  %o = "attn.update"(%s, %q, %kv) <{head_classes = #attn.head_classes<{a: see all}>, scale = 1.0 : f32, visibility = #attn.visibility<all>}>
      ({}) : (!state, !query, !kv) -> !state
  return
}
