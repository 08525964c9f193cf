// RUN: attn-opt %s -split-input-file -verify-diagnostics

!query = tensor<?x8x64xf16>
!part = !attn.kv<paged<16>, heads = ?, dim = 64, key = f16, value = f16>
func.func @no_classes(%q: !query, %kv: !part) {
  // expected-error @below {{expected head classes, as in heads %classes {streaming: see all}, beside a region for 'streaming'}}
  %o = attn.attend %q over (%kv see all for streaming) : !query, !part -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<paged<16>, heads = ?, dim = 64, key = f16, value = f16>
func.func @not_declared(%q: !query, %kv: !part, %classes: tensor<4xi32>) {
  // expected-error @below {{expected a region for one of the head classes retrieval, streaming, got 'steaming'; nearest legal: streaming}}
  %o = attn.attend %q over (%kv see all for steaming) heads %classes {retrieval: see all, streaming: see sink(4)}
      : !query, !part, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<paged<16>, heads = 4, dim = 64, key = f16, value = f16>
func.func @all_heads(%q: !query, %kv: !kv, %classes: tensor<4xi32>) {
  // expected-error @below {{expected a region for 'b' to have heads = ?, the heads that the assignment gives the class; got heads = 4}}
  %o = attn.attend %q over (%kv see all for b) heads %classes {a: see all, b: see sink(4)}
      : !query, !kv, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @no_class(%q: !query, %kv: !part, %classes: tensor<4xi32>) {
  // expected-error @below {{expected a number of KV heads in a region that all KV heads see, got '!attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>'; heads = ? is a region of one class, see ... for CLASS}}
  %o = attn.attend %q over (%kv see all) heads %classes {a: see all, b: see sink(4)}
      : !query, !part, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @two_classes(%q: !query, %kv: !part, %classes: tensor<4xi32>) {
  // expected-error @below {{expected a store to hold the heads of one class, got the same for 'a' in region 0 and for 'b' in region 1}}
  %o = attn.attend %q over (%kv see all for a), (%kv see causal for b) heads %classes {a: see all, b: see sink(4)}
      : !query, !part, !part, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @ratio(%q: !query, %kv: !part, %classes: tensor<3xi32>) {
  // expected-error @below {{expected query heads to be a multiple of the 3 KV heads, got 8; nearest legal: 6 or 9}}
  %o = attn.attend %q over (%kv see all for a) heads %classes {a: see all} : !query, !part, tensor<3xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @unknown_heads(%q: !query, %kv: !part, %classes: tensor<?xi32>) {
  // expected-error @below {{expected one or more KV heads, got 0}}
  %o = attn.attend %q over (%kv see all for a) heads %classes {a: see all} : !query, !part, tensor<?xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @other_heads(%q: !query, %a: !part, %kv: !kv, %classes: tensor<8xi32>) {
  // expected-error @below {{expected the head classes to be assigned by 'tensor<4xi32>', one element per KV head, got 'tensor<8xi32>'}}
  %o = attn.attend %q over (%a see all for a), (%kv see all) heads %classes {a: see all}
      : !query, !part, !kv, tensor<8xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @nameless(%q: !query, %kv: !part, %classes: tensor<4xi32>) {
  // expected-error @below {{expected the name of a head class, got an empty one}}
  %o = attn.attend %q over (%kv see all for "") heads %classes {a: see all} : !query, !part, tensor<4xi32> -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
func.func @one_name_each(%q: !query, %kv: !part, %classes: tensor<4xi32>) {
  // expected-error @below {{expected one class name per region, 1, got 2}}
  %o = "attn.attend"(%q, %kv, %classes) <{head_classes = #attn.head_classes<{a: see all}>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0>,
      region_classes = ["a", "a"], visibility = [#attn.visibility<all>]}> ({}) : (!query, !part, tensor<4xi32>) -> !query
  return
}

// -----

!query = tensor<?x8x64xf16>
!part = !attn.kv<dense, heads = ?, dim = 64, key = f16, value = f16>
!state = !attn.state<heads = 8, value_dim = 64>
func.func @update(%q: !query, %kv: !part, %classes: tensor<4xi32>, %s: !state) {
  // expected-error @below {{expected a region for one of the head classes a, got 'b'; nearest legal: a}}
  %o = attn.update %s, %q, %kv see all for b heads %classes {a: see all} scale 1.0 : !query, !part, tensor<4xi32> -> !state
  return
}
