// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-split-regions

// An attention without a backward pass is refused if one is requested.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<paged<16>, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @paged(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{has no backward pass (attn.backward): region 0 is paged<16>; expected a dense or packed store}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = !attn.quantized<f8E4M3FN, per = head>, value = bf16>
func.func @codes(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{region 0 is quantized; expected keys and values of f16 or bf16}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @twice(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{region 1 repeats an earlier region; expected each argument once}}
  %o = attn.attend %q over (%kv see sink(4)), (%kv see recent(8)) : !q, !kv, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @classes(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %c: tensor<4xi32> {attn.name = "classes"}) -> !q attributes {attn.backward} {
  // expected-error @below {{its heads have classes; expected all heads to see the same tokens}}
  %o = attn.attend %q over (%kv see causal) heads %c {all: see all, few: see sink(4)} : !q, !kv, tensor<4xi32> -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @pairs(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %bias: tensor<?xf32> {attn.name = "bias"}) -> !q
    attributes {attn.backward = ["bias"]} {
  // expected-error @below {{elements of "bias" are indexed by the position of keys, or by the score; expected indices of the head and the position of queries alone}}
  %o = attn.attend %q over (%kv see causal) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %back = arith.subi %q_pos, %k_pos : i32
      %b = attn.read %bias[%back] : tensor<?xf32>
      %t = arith.addf %s, %b : f32
      attn.yield %t : f32
  } : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @unknown(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %a: tensor<4xf32> {attn.name = "a"}) -> !q
    attributes {attn.backward = ["b"]} {
  // expected-error @below {{its list holds "b"; expected names of tables or sinks: a}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @number(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward = 1 : i32} {
  // expected-error @below {{expected no value, or a list of names of tables and sinks, got 1 : i32}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @gate(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %g: !q {attn.name = "gate"}) -> !q attributes {attn.backward} {
  // expected-error @below {{has no backward pass (attn.backward): it has a gate; expected none: multiply the output by the gate's sigmoid afterwards}}
  %o = attn.attend %q over (%kv see causal) gate %g : !q, !kv, !q -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!o = tensor<?x4x64xf8E4M3FN>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @output_scale(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %s: tensor<1xf32> {attn.name = "output_scale"}) -> !o attributes {attn.backward} {
  // expected-error @below {{has no backward pass (attn.backward): its output is quantized; expected an output of the query's type, 'bf16'}}
  %o = attn.attend %q over (%kv see causal) output_scale %s : !q, !kv, tensor<1xf32> -> !o
  return %o : !o
}

// -----

!q = tensor<?x4x64xbf16>
!o = tensor<?x4x64xf8E4M3FN>
!lse = tensor<?x4xf32>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @output_scales(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!o, !lse, !lse) attributes {attn.backward} {
  // expected-error @below {{has no backward pass (attn.backward): its output is quantized; expected an output of the query's type, 'bf16'}}
  %o, %lse, %s = attn.attend %q over (%kv see causal) : !q, !kv -> !o, !lse output_scales !lse
  return %o, %lse, %s : !o, !lse, !lse
}
