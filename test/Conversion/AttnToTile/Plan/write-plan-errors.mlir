// RUN: attn-opt %s --split-input-file --verify-diagnostics --attn-split-regions --canonicalize --attn-choose-schedule=target=sm_80 --attn-make-kernels --attn-write-plan

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>

func.func @three(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query attributes {attn.device_plan} {
  // expected-error@+1 {{cannot be planned on the device: expected a visibility of at most two intervals, got 3}}
  %o = attn.attend %q over (%kv see sink(4) | recent(9) | sink(5)) scale 1.0 : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>

// expected-error@+1 {{cannot be planned on the device: its heads have classes}}
func.func @classes(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %classes: tensor<2xi32> {attn.name = "classes"}) -> !query
    attributes {attn.device_plan} {
  %o = attn.attend %q over (%kv see causal) heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)} scale 1.0
      : !query, !kv, tensor<2xi32> -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x64xbf16>
!lse = tensor<?x8xf32>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>

// A later row may not see the token that is stored now.
func.func @hidden(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!query, !lse)
    attributes {attn.device_plan, attn.significance = "max"} {
  // expected-error@+1 {{cannot be planned on the device: expected rows that see all of their tokens: their significance comes from stored scores}}
  %o, %lse = attn.attend %q over (%kv see window(64)) scale 1.0 : !query, !kv -> !query, !lse
  return %o, %lse : !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!lse = tensor<?x8xf32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>

func.func @packed(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> (!query, !lse)
    attributes {attn.device_plan, attn.significance = "max"} {
  // expected-error@+1 {{cannot be planned on the device: expected a paged or dense region, whose capacity does not depend on lengths, to have significance}}
  %o, %lse = attn.attend %q over (%kv see causal) scale 1.0 : !query, !kv -> !query, !lse
  return %o, %lse : !query, !lse
}
