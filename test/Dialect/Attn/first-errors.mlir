// RUN: attn-opt %s --split-input-file --verify-diagnostics --attn-check-signature --attn-split-regions --canonicalize --attn-choose-schedule=schedule=mma --attn-make-kernels

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

func.func @another_visibility(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  // expected-error @below {{expected one attention per function, or two, one of them over only the first region of the other: equal query, scale and visibility, an LSE of both, and neither sinks nor a gate nor an output scale nor head classes nor a score region}}
  %n, %m = attn.attend %q over (%a see all) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{expected the function to return the output and the LSE of the attention over all regions, and then those of the attention over the first region}}
func.func @in_the_other_order(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  return %n, %m, %o, %l : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{expected exactly one attn.attend, got 3}}
func.func @three(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse) {
  // expected-note @below {{here}}
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  // expected-note @below {{here}}
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  // expected-note @below {{here}}
  %x, %y = attn.attend %q over (%b see causal) : !query, !kv -> !query, !lse
  return %o, %l : !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{argument 1: expected a name that is not reserved and has no point, got "first_o"}}
func.func @reserved(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "first_o"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{finishes a state early, and cannot be marked attn.device_plan}}
func.func @planned_on_the_device(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) attributes {attn.device_plan} {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>
!state = !attn.state<heads = 8, value_dim = 64>

func.func @not_behind_the_first(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !kv -> !state
  %2 = attn.update %1, %q, %b see causal scale 1.0 : !query, !kv -> !state
  // expected-error @below {{expected a single chain of two updates and more, and the state after the first: a kernel finishes no other state early}}
  %n, %m = attn.finish %2 {attn.first} : !state -> !query, !lse
  %o, %l = attn.finish %2 : !state -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{expected one attention beside attn.backward or attn.significance, got two}}
func.func @beside_gradients(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) attributes {attn.backward} {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>

// expected-error @below {{expected one attention beside attn.backward or attn.significance, got two}}
func.func @beside_significance(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!query, !lse, !query, !lse) attributes {attn.significance = "max"} {
  %o, %l = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !query, !lse
  %n, %m = attn.attend %q over (%a see causal) : !query, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>
!out = tensor<?x8x64xf8E4M3FN>

func.func @output_scales(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!out, !lse, !lse) {
  %n, %m, %t = attn.attend %q over (%a see causal) : !query, !kv -> !out, !lse output_scales !lse
  // expected-error @below {{expected one attention per function, or two, one of them over only the first region of the other: equal query, scale and visibility, an LSE of both, and neither sinks nor a gate nor an output scale}}
  %o, %l, %s = attn.attend %q over (%a see causal), (%b see causal) : !query, !kv, !kv -> !out, !lse output_scales !lse
  return %o, %l, %s : !out, !lse, !lse
}
