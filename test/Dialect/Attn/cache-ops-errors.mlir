// RUN: attn-opt %s --attn-check-signature -split-input-file -verify-diagnostics

!slots = tensor<?xi32>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16>
func.func @dense(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  // expected-error @below {{expected a paged or a packed cache, got '!attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16>'; dense memory is a packed cache of instances * tokens slots}}
  attn.move %kv from %from to %to : !kv, !slots, !slots
  return
}

// -----

!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @list(%kv: !kv {attn.name = "kv"}, %from: tensor<?xi64> {attn.name = "from"}, %to: tensor<?xi32> {attn.name = "to"}) {
  // expected-error @below {{expected slots to be 'tensor<?xi32>', got 'tensor<?xi64>'}}
  attn.move %kv from %from to %to : !kv, tensor<?xi64>, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = bf16>
func.func @element(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"},
                   %slots: tensor<?xi32> {attn.name = "slots"}) {
  // expected-error @below {{expected values by row of a cache of that type to be 'tensor<?x?x2x64xbf16>', got 'tensor<?x?x2x64xf16>'}}
  attn.append %k, %v to %kv at %slots : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @rank(%kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!rows, !rows) {
  // expected-error @below {{expected keys by row of a cache of that type to be 'tensor<?x?x2x64xf16>', got 'tensor<?x2x64xf16>'}}
  %k, %v = attn.gather %kv at %slots : !kv, tensor<?xi32> -> !rows, !rows
  return %k, %v : !rows, !rows
}

// -----

!slots = tensor<?xi32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @two(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !kv, !slots, !slots
  // expected-error @below {{expected one operation on a cache per function and nothing beside it, got a second}}
  attn.move %kv from %from to %to : !kv, !slots, !slots
  return
}

// -----

!slots = tensor<?xi32>
!query = tensor<?x4x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @attend(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"},
                  %to: !slots {attn.name = "to"}) -> !query {
  attn.move %kv from %from to %to : !kv, !slots, !slots
  // expected-error @below {{expected one operation on a cache per function and nothing beside it, got another operation}}
  %o = attn.attend %q over (%kv see all) : !query, !kv -> !query
  return %o : !query
}

// -----

!slots = tensor<?xi32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 0: expected each operand of the move to be a separate argument}}
func.func @same(%list: !slots {attn.name = "from"}, %kv: !kv {attn.name = "kv"}) {
  attn.move %kv from %list to %list : !kv, !slots, !slots
  return
}

// -----

!slots = tensor<?xi32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 3: expected every argument to be used by the move}}
func.func @unused(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"},
                  %slots: !slots {attn.name = "slots"}) {
  attn.move %kv from %from to %to : !kv, !slots, !slots
  return
}

// -----

!slots = tensor<?xi32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected the slots to be named "from", got "slots"}}
func.func @list_name(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "slots"}, %to: !slots {attn.name = "to"}) {
  attn.move %kv from %from to %to : !kv, !slots, !slots
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected the rows to be named "v", got "values"}}
func.func @rows_name(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "values"}, %kv: !kv {attn.name = "kv"},
                     %slots: tensor<?xi32> {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 0: expected a name that is not reserved and has no point, got "k"}}
func.func @cache_name(%kv: !kv {attn.name = "k"}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !kv, tensor<?xi32> -> !rows, !rows
  return %k, %v : !rows, !rows
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 1: expected the attribute attn.name, as in {attn.name = "slots"}}}
func.func @unnamed(%kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32>) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !kv, tensor<?xi32> -> !rows, !rows
  return %k, %v : !rows, !rows
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{argument 0: expected attn.dims to name 2 dynamic dimensions (as in layers, tokens), got 1}}
func.func @dims(%kv: !kv {attn.name = "kv", attn.dims = ["tokens"]}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !kv, tensor<?xi32> -> !rows, !rows
  return %k, %v : !rows, !rows
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{expected the function to return the keys and values that it gathers}}
func.func @results(%kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) -> (!rows, !rows) {
  %k, %v = attn.gather %kv at %slots : !kv, tensor<?xi32> -> !rows, !rows
  return %v, %k : !rows, !rows
}

// -----

!slots = tensor<?xi32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
// expected-error @below {{expected the function to return nothing: it changes the cache}}
func.func @returns(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) -> !slots {
  attn.move %kv from %from to %to : !kv, !slots, !slots
  return %from : !slots
}

// -----

!cache = !attn.kv<paged<16>, heads = ?, dim = 64, key = f16, value = f16>
func.func @class_store(%kv: !cache, %from: tensor<?xi32>, %to: tensor<?xi32>) {
  // expected-error @below {{expected a cache with a number of KV heads, got '!attn.kv<paged<16>, heads = ?}}
  attn.move %kv from %from to %to : !cache, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

!cache = !attn.kv<paged<16>, ragged, heads = 4, dim = 64, key = f16, value = f16>
func.func @ragged(%kv: !cache, %from: tensor<?xi32>, %to: tensor<?xi32>) {
  // expected-error @below {{expected a cache whose slots hold all KV heads, got '!attn.kv<paged<16>, ragged, heads = 4, dim = 64, key = f16, value = f16>'; write each head of a ragged cache as a separate cache with heads = 1}}
  attn.move %kv from %from to %to : !cache, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
func.func @codes_rows(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) {
  // expected-error @below {{expected keys by row of a cache of that type to be 'tensor<?x?x2x64xbf16>', or of f16, got 'tensor<?x?x2x64xf32>'}}
  attn.append %k, %v to %kv at %slots : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @status_plain(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %n: tensor<1xi32> {attn.name = "status"}) {
  // expected-error @below {{expected a quantized cache with a status, which counts numbers that cannot be quantized, got '!attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>'}}
  attn.append %k, %v to %kv at %slots status %n : !rows, !rows, !kv, tensor<?xi32>, tensor<1xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
func.func @status_type(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %n: tensor<2xi32> {attn.name = "status"}) {
  // expected-error @below {{expected the status to be 'tensor<1xi32>', got 'tensor<2xi32>'}}
  attn.append %k, %v to %kv at %slots status %n : !rows, !rows, !kv, tensor<?xi32>, tensor<2xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
// expected-error @below {{argument 4: expected the status to be named "status", got "count"}}
func.func @status_name(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %n: tensor<1xi32> {attn.name = "count"}) {
  attn.append %k, %v to %kv at %slots status %n : !rows, !rows, !kv, tensor<?xi32>, tensor<1xi32>
  return
}

// -----

!slots = tensor<?xi32>
!low = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i4, per = 64>, value = f16>
!high = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
func.func @more_bits(%a: !low {attn.name = "a"}, %b: !high {attn.name = "b"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  // expected-error @below {{expected keys to be requantized to at most as many bits, or to stay unchanged, got i4 per 64 to i8 per 64; attn.gather dequantizes}}
  attn.requantize %a at %from to %b at %to : !low, !slots, !high, !slots
  return
}

// -----

!slots = tensor<?xi32>
!low = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i4, per = 64>, value = f16>
!high = !attn.kv<packed, heads = 1, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
func.func @other_heads(%a: !high {attn.name = "a"}, %b: !low {attn.name = "b"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  // expected-error @below {{expected caches of the same heads and dims, got '!attn.kv<packed, heads = 1,}}
  attn.requantize %a at %from to %b at %to : !high, !slots, !low, !slots
  return
}

// -----

!slots = tensor<?xi32>
!low = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i4, per = 64>, value = f16>
!high = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>
func.func @order(%b: !low {attn.name = "b"}, %a: !high {attn.name = "a"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
  // expected-error @below {{expected the cache that is read before the cache that is written}}
  attn.requantize %a at %from to %b at %to : !high, !slots, !low, !slots
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<64>>
func.func @latent(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}) {
  // expected-error @below {{expected keys alone: values of '!attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<64>>' are a part of them}}
  attn.append %k, %v to %kv at %slots : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = f16>
func.func @keys(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) {
  // expected-error @below {{expected keys and values: those of '!attn.kv<packed, heads = 1, dim = 64, key = f16, value = f16>' lie apart}}
  attn.append %k to %kv at %slots : !rows, !kv, tensor<?xi32>
  return
}

// -----

!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<64>>
!low = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = f16>
func.func @requantize(%kv: !kv {attn.name = "kv"}, %low: !low {attn.name = "low"}, %from: tensor<?xi32> {attn.name = "from"},
                      %to: tensor<?xi32> {attn.name = "to"}) {
  // expected-error @below {{expected caches with values of their own, got '!attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<64>>' and}}
  attn.requantize %kv at %from to %low at %to : !kv, tensor<?xi32>, !low, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
!table = tensor<?x33xf32>
func.func @more_than_the_head(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) {
  // expected-error @below {{expected cosines of 1 to 32 angles for heads of 64 features, got 'tensor<?x33xf32>'}}
  attn.append %k, %v to %kv at %slots rotate %cos, %sin at %at : !table, !table, tensor<?xi32> : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
!table = tensor<?x32xbf16>
func.func @other_type(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) {
  // expected-error @below {{expected cosines and sines to be 'tensor<?x32xf16>', or of f32, got 'tensor<?x32xbf16>'}}
  attn.append %k, %v to %kv at %slots rotate %cos, %sin at %at : !table, !table, tensor<?xi32> : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @weights(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x32xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected the weights of keys to be 'tensor<?x64xf16>', or of f32, got 'tensor<?x32xf32>'}}
  attn.append %k, %v to %kv at %slots norm %wk : tensor<?x32xf32> epsilon 1.0e-6 : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!q = tensor<?x?x4x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @queries_without_weights(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %q: !q {attn.name = "q"}, %wk: tensor<?x64xf32> {attn.name = "k_norm"}) -> !q {
  // expected-error @below {{expected weights of queries where there are queries, and only there}}
  %r = attn.append %k, %v to %kv at %slots query %q : !q norm %wk : tensor<?x64xf32> epsilon 1.0e-6 : !rows, !rows, !kv, tensor<?xi32> -> !q
  return %r : !q
}

// -----

!rows = tensor<?x?x2x64xf16>
!q = tensor<?x?x4x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @nothing_to_do(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %q: !q {attn.name = "q"}) -> !q {
  // expected-error @below {{expected a norm or a rotation of the queries}}
  %r = attn.append %k, %v to %kv at %slots query %q : !q : !rows, !rows, !kv, tensor<?xi32> -> !q
  return %r : !q
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @strided_beside_a_norm(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x64xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected no 'strided' beside a norm or a rotation, whose rows have strides}}
  attn.append %k, %v to %kv at %slots norm %wk : tensor<?x64xf32> epsilon 1.0e-6 strided : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<unified<16>, heads = 1, dim = 64, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i8, per = 64>>
func.func @strided_unified(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}) {
  // expected-error @below {{expected a paged or a packed cache where rows have strides, got}}
  attn.append %k, %v to %kv at %slots strided : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @epsilon(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x64xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected an epsilon that is finite and at least 0, got -1}}
  attn.append %k, %v to %kv at %slots norm %wk : tensor<?x64xf32> epsilon -1.0 : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @no_epsilon(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x64xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected an epsilon beside the weights of a norm}}
  "attn.append"(%k, %v, %kv, %slots, %wk) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0>}> : (!rows, !rows, !kv, tensor<?xi32>, tensor<?x64xf32>) -> ()
  return
}

// -----

!rows = tensor<?x?x2x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
!table = tensor<?x32xf32>
// expected-error @below {{argument 4: expected the tensor to be named "cos", got "cosines"}}
func.func @name(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %cos: !table {attn.name = "cosines"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) {
  attn.append %k, %v to %kv at %slots rotate %cos, %sin at %at : !table, !table, tensor<?xi32> : !rows, !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
func.func @weights_of_latents(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x64xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected the weights of keys to be 'tensor<?x32xf16>', or of f32, got 'tensor<?x64xf32>'}}
  attn.append %k to %kv at %slots norm %wk : tensor<?x64xf32> epsilon 1.0e-6 : !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
!table = tensor<?x16xf32>
!q = tensor<?x?x4x32xf16>
func.func @weights_of_queries_of_latents(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %q: !q {attn.name = "q"}, %wk: tensor<?x32xf32> {attn.name = "k_norm"}, %wq: tensor<?x32xf32> {attn.name = "q_norm"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) -> !q {
  // expected-error @below {{expected no weights of queries of latents, which have no norm}}
  %r = attn.append %k to %kv at %slots query %q : !q norm %wk : tensor<?x32xf32> epsilon 1.0e-6 query_norm %wq : tensor<?x32xf32> rotate %cos, %sin at %at : !table, !table, tensor<?xi32> from 32 : !rows, !kv, tensor<?xi32> -> !q
  return %r : !q
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
!q = tensor<?x?x4x32xf16>
func.func @queries_of_latents_that_stay(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %q: !q {attn.name = "q"}, %wk: tensor<?x32xf32> {attn.name = "k_norm"}) -> !q {
  // expected-error @below {{expected a rotation where there are queries of latents}}
  %r = attn.append %k to %kv at %slots query %q : !q norm %wk : tensor<?x32xf32> epsilon 1.0e-6 : !rows, !kv, tensor<?xi32> -> !q
  return %r : !q
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
!table = tensor<?x16xf32>
!q = tensor<?x?x4x64xf16>
func.func @whole_queries_of_latents(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %q: !q {attn.name = "q"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) -> !q {
  // expected-error @below {{expected queries of the keys' rotated features and type, [layers, rows, q_heads, 32], got 'tensor<?x?x4x64xf16>'}}
  %r = attn.append %k to %kv at %slots query %q : !q rotate %cos, %sin at %at : !table, !table, tensor<?xi32> from 32 : !rows, !kv, tensor<?xi32> -> !q
  return %r : !q
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
!table = tensor<?x16xf32>
func.func @past_the_head(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) {
  // expected-error @below {{expected 32 rotated features within heads of 64, from a multiple of 8 on, got from 40; nearest legal: 32}}
  attn.append %k to %kv at %slots rotate %cos, %sin at %at : !table, !table, tensor<?xi32> from 40 : !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
!table = tensor<?x16xf32>
func.func @between_eights(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %cos: !table {attn.name = "cos"}, %sin: !table {attn.name = "sin"}, %at: tensor<?xi32> {attn.name = "positions"}) {
  // expected-error @below {{expected 32 rotated features within heads of 64, from a multiple of 8 on, got from 20; nearest legal: 16}}
  attn.append %k to %kv at %slots rotate %cos, %sin at %at : !table, !table, tensor<?xi32> from 20 : !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x64xf16>
!kv = !attn.kv<packed, heads = 1, dim = 64, key = f16, value = first<32>>
func.func @from_without_a_rotation(%k: !rows {attn.name = "k"}, %kv: !kv {attn.name = "kv"}, %slots: tensor<?xi32> {attn.name = "slots"}, %wk: tensor<?x32xf32> {attn.name = "k_norm"}) {
  // expected-error @below {{expected 'from' beside a rotation}}
  attn.append %k to %kv at %slots norm %wk : tensor<?x32xf32> epsilon 1.0e-6 from 32 : !rows, !kv, tensor<?xi32>
  return
}

// -----

!rows = tensor<?x?x1x576xbf16>
!kv = !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = token>, value = first<512>>
func.func @long(%k: !rows, %kv: !kv, %slots: tensor<?xi32>) {
  // expected-error @below {{expected a scale per tensor or head of lines of more than 256 features, got '!attn.quantized<f8E4M3FN, per = token>'; nearest legal: '!attn.quantized<f8E4M3FN, per = tensor>'}}
  attn.append %k to %kv at %slots : !rows, !kv, tensor<?xi32>
  return
}
