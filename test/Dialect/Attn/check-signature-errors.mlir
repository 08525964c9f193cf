// RUN: attn-opt %s --attn-check-signature -split-input-file -verify-diagnostics

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected the attribute attn.name, as in {attn.name = "kv"}}}
func.func @unnamed(%q: !query {attn.name = "q"}, %kv: !kv) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected a name of its own, got "kv", the name of argument 1}}
func.func @twice(%q: !query {attn.name = "q"}, %a: !kv {attn.name = "kv"}, %b: !kv {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%a see all), (%b see all) : !query, !kv, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 0: expected the query to be named "q", got "queries"}}
func.func @query_name(%q: !query {attn.name = "queries"}, %kv: !kv {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected a name that is not reserved and has no point, got "q_pos"}}
func.func @reserved(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "q_pos"}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected a tensor of f32, a KV operand or the query, got 'tensor<4xi32>'}}
func.func @type(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %x: tensor<4xi32> {attn.name = "x"}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected attn.dims to name 2 dynamic dimensions (instances and tokens), got 1}}
func.func @dims(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv", attn.dims = ["batch"]}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{expected the function to return the output and then, optionally, the LSE of its attention}}
func.func @results(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4xf32> {
  %o, %lse = attn.attend %q over (%kv see all) : !query, !kv -> !query, tensor<?x4xf32>
  return %lse : tensor<?x4xf32>
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @two(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  // expected-error @below {{expected one attention per function, or two, one of them over only the first region of the other}}
  %p = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return %o : !query
}

// -----

!state = !attn.state<heads = 4, value_dim = 64>
// expected-error @below {{expected an attention operation, got no query}}
func.func @no_query(%s: !state {attn.name = "s"}) -> tensor<?x4x64xf16> {
  %o = attn.finish %s : !state -> tensor<?x4x64xf16>
  return %o : tensor<?x4x64xf16>
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{expected the query to be an argument of the function}}
func.func @computed(%kv: !kv {attn.name = "kv"}) -> !query {
  %q = builtin.unrealized_conversion_cast to !query
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

// expected-error @below {{argument 0: expected attn.name to be a string that is not empty, got 3 : i64}}
func.func private @name_type(tensor<?xf32> {attn.name = 3})

// -----

// expected-error @below {{argument 0: expected attn.dims to be an array of strings that are not empty, got "rows"}}
func.func private @dims_type(tensor<?xf32> {attn.dims = "rows"})

// -----

// expected-error @below {{argument 0: expected attn.name or attn.dims, got "attn.role"}}
func.func private @attribute(tensor<?xf32> {attn.role = "q"})

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected the classes to be named "classes", got "policy"}}
func.func @classes_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
                        %c: tensor<4xi32> {attn.name = "policy"}) -> !query {
  %o = attn.attend %q over (%kv see all) heads %c {x: see all, y: see causal} : !query, !kv, tensor<4xi32> -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected a name that is not reserved and has no point, got "ordinal_heads"}}
func.func @ordinal_heads(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
                      %c: tensor<4xf32> {attn.name = "ordinal_heads"}) -> !query {
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!state = !attn.state<heads = 4, value_dim = 64>
func.func @two_assignments(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
                           %c: tensor<4xi32> {attn.name = "classes"}, %d: tensor<4xi32> {attn.name = "others"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see all heads %c {x: see all, y: see causal} scale 1.0 : !query, !kv, tensor<4xi32> -> !state
  // expected-error @below {{expected one assignment of heads to classes per function, got a second}}
  %2 = attn.update %1, %q, %kv see all heads %d {x: see all, y: see causal} scale 1.0 : !query, !kv, tensor<4xi32> -> !state
  %o = attn.finish %2 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected the gate to be named "gate", got "g"}}
func.func @gate_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %g: !query {attn.name = "g"}) -> !query {
  %o = attn.attend %q over (%kv see all) gate %g : !query, !kv, !query -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{expected attn.dims of the gate to be those of the query, "rows", got "lines"}}
func.func @gate_rows(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %g: !query {attn.name = "gate", attn.dims = ["lines"]}) -> !query {
  %o = attn.attend %q over (%kv see all) gate %g : !query, !kv, !query -> !query
  return %o : !query
}

// -----

!query = tensor<?x4x64xf16>
!out = tensor<?x4x64xf8E4M3FN>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 2: expected the output_scale to be named "output_scale", got "s"}}
func.func @output_scale_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %s: tensor<1xf32> {attn.name = "s"}) -> !out {
  %o = attn.attend %q over (%kv see all) output_scale %s : !query, !kv, tensor<1xf32> -> !out
  return %o : !out
}

// -----

!query = tensor<?x4x64xf16>
!out = tensor<?x4x64xf8E4M3FN>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{expected the function to return the output, optionally the LSE of its attention, and then the scales of the output}}
func.func @output_scales_are_lost(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !out {
  %o, %s = attn.attend %q over (%kv see all) : !query, !kv -> !out output_scales tensor<?x4xf32>
  return %o : !out
}

// -----

!query = tensor<?x4x64xf16>
!out = tensor<?x4x64xf8E4M3FN>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected a name that is not reserved and has no point, got "output_scales"}}
func.func @output_scales_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "output_scales"}) -> (!out, tensor<?x4xf32>) {
  %o, %s = attn.attend %q over (%kv see all) : !query, !kv -> !out output_scales tensor<?x4xf32>
  return %o, %s : !out, tensor<?x4xf32>
}
