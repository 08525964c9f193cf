// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @init_query(%q: tensor<4x64xf16>) {
  // expected-error @below {{expected query to be tensor<?x(heads)x(dim)x(type)>, rows dynamic and the rest static, got 'tensor<4x64xf16>'}}
  %s = attn.init %q : tensor<4x64xf16> -> !attn.state<heads = 4, value_dim = 64>
  return
}

// -----

func.func @init_heads(%q: tensor<?x4x64xf16>) {
  // expected-error @below {{expected a state of the query's 4 heads, got 8}}
  %s = attn.init %q : tensor<?x4x64xf16> -> !attn.state<heads = 8, value_dim = 64>
  return
}

// -----

func.func @init_sinks(%q: tensor<?x4x64xf16>, %sinks: tensor<1xf32>) {
  // expected-error @below {{expected the sink logits to be 'tensor<4xf32>', one per query head, got 'tensor<1xf32>'}}
  %s = attn.init %q sinks %sinks : tensor<?x4x64xf16>, tensor<1xf32> -> !attn.state<heads = 4, value_dim = 64>
  return
}

// -----

!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @update_state(%q: tensor<?x4x64xf16>, %kv: !kv, %s: !attn.state<heads = 4, value_dim = 32>) {
  // expected-error @below {{expected a state of 4 heads and value dim 64, got '!attn.state<heads = 4, value_dim = 32>'}}
  %t = attn.update %s, %q, %kv see all scale 1.0 : tensor<?x4x64xf16>, !kv -> !attn.state<heads = 4, value_dim = 32>
  return
}

// -----

!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @update_heads(%q: tensor<?x6x64xf16>, %kv: !kv, %s: !attn.state<heads = 6, value_dim = 64>) {
  // expected-error @below {{expected query heads to be a multiple of the 4 KV heads, got 6; nearest legal: 4 or 8}}
  %t = attn.update %s, %q, %kv see all scale 1.0 : tensor<?x6x64xf16>, !kv -> !attn.state<heads = 6, value_dim = 64>
  return
}

// -----

!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @update_scale(%q: tensor<?x4x64xf16>, %kv: !kv, %s: !attn.state<heads = 4, value_dim = 64>) {
  // expected-error @below {{expected a scale that is positive and finite, got 0}}
  %t = attn.update %s, %q, %kv see all scale 0.0 : tensor<?x4x64xf16>, !kv -> !attn.state<heads = 4, value_dim = 64>
  return
}

// -----

!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @update_score(%q: tensor<?x4x64xf16>, %kv: !kv, %s: !attn.state<heads = 4, value_dim = 64>) {
  // expected-error @below {{expected the score region to end with attn.yield}}
  %t = attn.update %s, %q, %kv see all scale 1.0 score {
    ^bb0(%x: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      llvm.unreachable
    } : tensor<?x4x64xf16>, !kv -> !attn.state<heads = 4, value_dim = 64>
  return
}

// -----

func.func @finish_output(%s: !attn.state<heads = 4, value_dim = 64>) {
  // expected-error @below {{expected the output to be tensor<?x4x64x(type)>, got 'tensor<?x4x32xf16>'}}
  %o = attn.finish %s : !attn.state<heads = 4, value_dim = 64> -> tensor<?x4x32xf16>
  return
}

// -----

func.func @finish_type(%s: !attn.state<heads = 4, value_dim = 64>) {
  // expected-error @below {{expected output elements to be f16 or bf16, got 'f32'}}
  %o = attn.finish %s : !attn.state<heads = 4, value_dim = 64> -> tensor<?x4x64xf32>
  return
}

// -----

func.func @finish_lse(%s: !attn.state<heads = 4, value_dim = 64>) {
  // expected-error @below {{expected the LSE to be 'tensor<?x4xf32>', got 'tensor<?x4xf16>'}}
  %o, %lse = attn.finish %s : !attn.state<heads = 4, value_dim = 64> -> tensor<?x4x64xf16>, tensor<?x4xf16>
  return
}
