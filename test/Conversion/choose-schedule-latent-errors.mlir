// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule=target=sm_90a

!kv = !attn.kv<dense, heads = 1, dim = 80, key = bf16, value = first<64>>
// expected-error @below {{has no backward pass: values are a part of their keys; expected keys and values apart, as the expanded form of latent attention has them}}
func.func @backward(%q: tensor<?x4x80xbf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4x64xbf16>
    attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x4x80xbf16> -> !attn.state<heads = 4, value_dim = 64>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x4x80xbf16>, !kv -> !attn.state<heads = 4, value_dim = 64>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 64> -> tensor<?x4x64xbf16>
  return %o : tensor<?x4x64xbf16>
}

// -----

!kv = !attn.kv<dense, heads = 1, dim = 512, key = bf16, value = bf16>
// expected-error @below {{no schedule of a backward pass for dim 512 and value dim 512}}
func.func @long(%q: tensor<?x4x512xbf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4x512xbf16>
    attributes {attn.backward} {
  %0 = attn.init %q : tensor<?x4x512xbf16> -> !attn.state<heads = 4, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x4x512xbf16>, !kv -> !attn.state<heads = 4, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 512> -> tensor<?x4x512xbf16>
  return %o : tensor<?x4x512xbf16>
}

// -----

!kv = !attn.kv<dense, heads = 1, dim = 512, key = bf16, value = bf16>
// expected-error @below {{has no significance: expected keys and values apart, of dims up to 256}}
func.func @significance(%q: tensor<?x4x512xbf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4x512xbf16>
    attributes {attn.significance = "sum"} {
  %0 = attn.init %q : tensor<?x4x512xbf16> -> !attn.state<heads = 4, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x4x512xbf16>, !kv -> !attn.state<heads = 4, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 512> -> tensor<?x4x512xbf16>
  return %o : tensor<?x4x512xbf16>
}

// -----

!kv = !attn.kv<dense, heads = 1, dim = 512, key = bf16, value = bf16>
// expected-error @below {{has 1 value_slices: expected 2 for values of 512 features}}
func.func @slices(%q: tensor<?x4x512xbf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4x512xbf16>
    attributes {tile.schedules = [#tile.schedule<mma, rows = 16, keys = 16, warps = 1, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>]} {
  %0 = attn.init %q : tensor<?x4x512xbf16> -> !attn.state<heads = 4, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x4x512xbf16>, !kv -> !attn.state<heads = 4, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 512> -> tensor<?x4x512xbf16>
  return %o : tensor<?x4x512xbf16>
}

// -----

!kv = !attn.kv<dense, heads = 1, dim = 512, key = bf16, value = bf16>
// expected-error @below {{stores results by TMA, and warpgroups share their rows: expected epilogue = store}}
func.func @send(%q: tensor<?x4x512xbf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x4x512xbf16>
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 64, keys = 32, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, value_slices = 2, query_stages = 2, epilogue = send>]} {
  %0 = attn.init %q : tensor<?x4x512xbf16> -> !attn.state<heads = 4, value_dim = 512>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x4x512xbf16>, !kv -> !attn.state<heads = 4, value_dim = 512>
  %o = attn.finish %1 : !attn.state<heads = 4, value_dim = 512> -> tensor<?x4x512xbf16>
  return %o : tensor<?x4x512xbf16>
}
