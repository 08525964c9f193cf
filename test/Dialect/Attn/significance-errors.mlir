// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-split-regions

// An attention that cannot compute significance is refused if it is requested.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @silent(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.significance = "max"} {
  // expected-error @below {{(attn.significance): expected its LSE as a result, from which weights are computed}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
// expected-error @below {{expected attn.significance = "max", "mean" or "sum", got "most"}}
func.func @most(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!q, tensor<?x4xf32>) attributes {attn.significance = "most"} {
  %o, %lse = attn.attend %q over (%kv see causal) : !q, !kv -> !q, tensor<?x4xf32>
  return %o, %lse : !q, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
// expected-error @below {{expected attn.significance_rows of 1 : i32 and more, or none for all rows, got 0 : i32}}
func.func @rows(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!q, tensor<?x4xf32>)
    attributes {attn.significance = "sum", attn.significance_rows = 0 : i32} {
  %o, %lse = attn.attend %q over (%kv see causal) : !q, !kv -> !q, tensor<?x4xf32>
  return %o, %lse : !q, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @classes(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %c: tensor<4xi32> {attn.name = "classes"}) -> (!q, tensor<?x4xf32>)
    attributes {attn.significance = "max"} {
  // expected-error @below {{its heads have classes; expected all heads to see the same tokens}}
  %o, %lse = attn.attend %q over (%kv see causal) heads %c {all: see all, few: see sink(4)} : !q, !kv, tensor<4xi32> -> !q, tensor<?x4xf32>
  return %o, %lse : !q, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
// expected-error @below {{expected attn.backward or attn.significance, got both}}
func.func @both(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!q, tensor<?x4xf32>)
    attributes {attn.backward, attn.significance = "max"} {
  %o, %lse = attn.attend %q over (%kv see causal) : !q, !kv -> !q, tensor<?x4xf32>
  return %o, %lse : !q, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @gate(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %g: !q {attn.name = "gate"}) -> (!q, tensor<?x4xf32>) attributes {attn.significance = "max"} {
  // expected-error @below {{(attn.significance): it has a gate; expected none}}
  %o, %lse = attn.attend %q over (%kv see causal) gate %g : !q, !kv, !q -> !q, tensor<?x4xf32>
  return %o, %lse : !q, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!o = tensor<?x4x64xf8E4M3FN>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @output_scale(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %s: tensor<1xf32> {attn.name = "output_scale"}) -> (!o, tensor<?x4xf32>) attributes {attn.significance = "max"} {
  // expected-error @below {{(attn.significance): its output is quantized; expected an output of the query's type, 'bf16'}}
  %o, %lse = attn.attend %q over (%kv see causal) output_scale %s : !q, !kv, tensor<1xf32> -> !o, tensor<?x4xf32>
  return %o, %lse : !o, tensor<?x4xf32>
}

// -----

!q = tensor<?x4x64xbf16>
!o = tensor<?x4x64xf8E4M3FN>
!lse = tensor<?x4xf32>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @output_scales(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!o, !lse, !lse) attributes {attn.significance = "max"} {
  // expected-error @below {{(attn.significance): its output is quantized; expected an output of the query's type, 'bf16'}}
  %o, %lse, %s = attn.attend %q over (%kv see causal) : !q, !kv -> !o, !lse output_scales !lse
  return %o, %lse, %s : !o, !lse, !lse
}
