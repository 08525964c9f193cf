// RUN: attn-opt %s -split-input-file -verify-diagnostics

!query = tensor<?x30x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @ratio(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query heads to be a multiple of the 8 KV heads, got 30; nearest legal: 24 or 32}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x3x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @fewer_heads(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query heads to be a multiple of the 8 KV heads, got 3; nearest legal: 8}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x100xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @query_dim(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query dim to be a multiple of 8 from 8 to 256, or of 32 up to 576, got 100; nearest legal: 96 or 104}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x5000x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @query_heads(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query heads from 1 to 4096, got 5000; nearest legal: 4096}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x64xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @dims_differ(%q: !query, %kv: !kv) {
  // expected-error @below {{expected the query dim to be the key dim, 128, got 64}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<4x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @static_rows(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query to be tensor<?x(heads)x(dim)x(type)>, rows dynamic and the rest static, got 'tensor<4x32x128xbf16>'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xf32>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @query_type(%q: !query, %kv: !kv) {
  // expected-error @below {{expected query elements to be f16 or bf16, got 'f32'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = f16, value = bf16>
func.func @key_type(%q: !query, %kv: !kv) {
  // expected-error @below {{expected key elements of the query's type, 'bf16', got 'f16'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = f16>
func.func @value_type(%q: !query, %kv: !kv) {
  // expected-error @below {{expected value elements of the query's type, 'bf16', got 'f16'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!other = !attn.kv<dense, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>
func.func @regions_differ(%q: !query, %a: !kv, %b: !other) {
  // expected-error @below {{expected all regions to have the heads and dims of the first, 8 heads of 128/128, got 8 heads of 128/64 in region 1}}
  %o = attn.attend %q over (%a see all), (%b see causal) : !query, !kv, !other -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
func.func @no_regions(%q: !query) {
  // expected-error @below {{expected at least one region, got none}}
  %o = "attn.attend"(%q) <{visibility = [], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0>}> ({}) : (!query) -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @visibility_count(%q: !query, %kv: !kv) {
  // expected-error @below {{expected one visibility per region, 1, got 0}}
  %o = "attn.attend"(%q, %kv) <{visibility = [], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0>}> ({}) : (!query, !kv) -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>
func.func @output_shape(%q: !query, %kv: !kv) {
  // expected-error @below {{expected the output to be tensor<?x32x64x(type)>, got 'tensor<?x32x128xbf16>'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @output_type(%q: !query, %kv: !kv) {
  // expected-error @below {{expected output elements of the query's type, 'bf16', got 'f16'}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> tensor<?x32x128xf16>
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @lse_shape(%q: !query, %kv: !kv) {
  // expected-error @below {{expected the LSE to be 'tensor<?x32xf32>', got 'tensor<?x8xf32>'}}
  %o, %lse = attn.attend %q over (%kv see causal) : !query, !kv -> !query, tensor<?x8xf32>
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @gate_shape(%q: !query, %kv: !kv, %gate: tensor<?x8xbf16>) {
  // expected-error @below {{expected the gate to be 'tensor<?x32x128xbf16>', one number per feature, or 'tensor<?x32xbf16>', one per head, got 'tensor<?x8xbf16>'}}
  %o = attn.attend %q over (%kv see causal) gate %gate : !query, !kv, tensor<?x8xbf16> -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @gate_type(%q: !query, %kv: !kv, %gate: tensor<?x32xf32>) {
  // expected-error @below {{one per head, got 'tensor<?x32xf32>'}}
  %o = attn.attend %q over (%kv see causal) gate %gate : !query, !kv, tensor<?x32xf32> -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @gate_type_missing(%q: !query, %kv: !kv, %gate: !query) {
  // expected-error @below {{expected 3 operand types (the query, 1 regions and the gate), got 2}}
  %o = attn.attend %q over (%kv see causal) gate %gate : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!out = tensor<?x32x128xf8E4M3FN>
func.func @quantized_without_scale(%q: !query, %kv: !kv) {
  // expected-error @below {{expected an output of f8E4M3FN to have an output_scale of 'tensor<1xf32>', by which outputs are divided, or output_scales, got none}}
  %o = attn.attend %q over (%kv see causal) : !query, !kv -> !out
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!out = tensor<?x32x128xf8E4M3FN>
func.func @scale_for_each_head(%q: !query, %kv: !kv, %s: tensor<32xf32>) {
  // expected-error @below {{to have an output_scale of 'tensor<1xf32>', by which outputs are divided, or output_scales, got 'tensor<32xf32>'}}
  %o = attn.attend %q over (%kv see causal) output_scale %s : !query, !kv, tensor<32xf32> -> !out
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scale_of_a_plain_output(%q: !query, %kv: !kv, %s: tensor<1xf32>) {
  // expected-error @below {{expected an output of f8E4M3FN beside output_scale, got 'bf16'; nearest legal: 'tensor<?x32x128xf8E4M3FN>'}}
  %o = attn.attend %q over (%kv see causal) output_scale %s : !query, !kv, tensor<1xf32> -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!out = tensor<?x32x128xf8E4M3FN>
func.func @gate_beside_a_scale(%q: !query, %kv: !kv, %g: tensor<?x32xf16>, %s: tensor<1xf32>) {
  // expected-error @below {{expected the gate to be 'tensor<?x32x128xbf16>', one number per feature, or 'tensor<?x32xbf16>', one per head, got 'tensor<?x32xf16>'}}
  %o = attn.attend %q over (%kv see causal) gate %g output_scale %s : !query, !kv, tensor<?x32xf16>, tensor<1xf32> -> !out
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!out = tensor<?x32x128xf8E4M3FN>
func.func @scale_type_missing(%q: !query, %kv: !kv, %s: tensor<1xf32>) {
  // expected-error @below {{expected 3 operand types (the query, 1 regions and the output scale), got 2}}
  %o = attn.attend %q over (%kv see causal) output_scale %s : !query, !kv -> !out
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
!out = tensor<?x32x128xf8E4M3FN>
!scales = tensor<?x32xf32>
func.func @two_forms_of_scales(%q: !query, %kv: !kv, %s: tensor<1xf32>) {
  // expected-error @below {{expected output_scale, a scale that is given, or output_scales, which are results, got both}}
  %o:2 = attn.attend %q over (%kv see causal) output_scale %s : !query, !kv, tensor<1xf32> -> !out output_scales !scales
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scales_of_a_plain_output(%q: !query, %kv: !kv) {
  // expected-error @below {{expected an output of f8E4M3FN beside output_scales, got 'bf16'; nearest legal: 'tensor<?x32x128xf8E4M3FN>'}}
  %o:2 = attn.attend %q over (%kv see causal) : !query, !kv -> !query output_scales tensor<?x32xf32>
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scales_of_kv_heads(%q: !query, %kv: !kv) {
  // expected-error @below {{expected output_scales to be 'tensor<?x32xf32>', got 'tensor<?x8xf32>'}}
  %o:2 = attn.attend %q over (%kv see causal) : !query, !kv -> tensor<?x32x128xf8E4M3FN> output_scales tensor<?x8xf32>
  return
}

// -----

!query = tensor<?x32x512xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 512, key = bf16, value = bf16>
func.func @scales_of_long_values(%q: !query, %kv: !kv) {
  // expected-error @below {{expected values of up to 256 features beside output_scales, as warps share the rows of longer values, got 512; nearest legal: output_scale, a scale that is given}}
  %o:2 = attn.attend %q over (%kv see causal) : !query, !kv -> tensor<?x32x512xf8E4M3FN> output_scales tensor<?x32xf32>
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @sinks_shape(%q: !query, %kv: !kv, %sinks: tensor<8xf32>) {
  // expected-error @below {{expected the sink logits to be 'tensor<32xf32>', one per query head, got 'tensor<8xf32>'}}
  %o = attn.attend %q over (%kv see causal) sinks %sinks : !query, !kv, tensor<8xf32> -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scale_sign(%q: !query, %kv: !kv) {
  // expected-error @below {{expected a scale that is positive and finite, got -0.5}}
  %o = attn.attend %q over (%kv see causal) scale -0.5 : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scale_zero(%q: !query, %kv: !kv) {
  // expected-error @below {{expected a scale that is positive and finite, got 0}}
  %o = attn.attend %q over (%kv see causal) scale 0.0 : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @scale_overflow(%q: !query, %kv: !kv) {
  // expected-error @below {{expected a scale that is positive and finite, got +Inf}}
  %o = attn.attend %q over (%kv see causal) scale 1.0e99 : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @operand_types(%q: !query, %kv: !kv) {
  // expected-error @below {{expected 2 operand types (the query, 1 regions), got 1}}
  %o = attn.attend %q over (%kv see causal) : !query -> !query
  return
}

// -----

!query = tensor<?x32x128xbf16>
!kv = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @result_types(%q: !query, %kv: !kv) {
  // expected-error @below {{expected 1 or 2 result types (the output and the LSE), got 3}}
  %o:3 = attn.attend %q over (%kv see causal) : !query, !kv -> !query, !query, !query
  return
}
