// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-split-regions

// What has no backward pass is refused where it is asked for.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<paged<16>, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @paged(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{has no backward pass (attn.backward): region 0 is paged<16>; expected a dense or packed store}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = !attn.codes<f8E4M3FN, per = head>, value = bf16>
func.func @codes(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{region 0 holds codes; expected keys and values of f16 or bf16}}
  %o = attn.attend %q over (%kv see causal) : !q, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @twice(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q attributes {attn.backward} {
  // expected-error @below {{region 1 is an earlier one again; expected each argument once}}
  %o = attn.attend %q over (%kv see sink(4)), (%kv see recent(8)) : !q, !kv, !kv -> !q
  return %o : !q
}

// -----

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 4, dim = 64, key = bf16, value = bf16>
func.func @classes(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %c: tensor<4xi32> {attn.name = "classes"}) -> !q attributes {attn.backward} {
  // expected-error @below {{its heads have classes; expected all heads to see alike}}
  %o = attn.attend %q over (%kv see causal) heads %c {all: see all, few: see sink(4)} : !q, !kv, tensor<4xi32> -> !q
  return %o : !q
}
