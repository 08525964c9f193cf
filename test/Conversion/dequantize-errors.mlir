// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule=schedule=mma --attn-make-kernels

!query = tensor<?x8x64xbf16>
!codes = !attn.kv<dense, heads = 8, dim = 64, key = f8E4M3FN, value = f8E4M3FN>
!state = !attn.state<heads = 8, value_dim = 64>
func.func @two(%q: !query {attn.name = "q"}, %a: !codes {attn.name = "a"}, %b: !codes {attn.name = "b"}) {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first region}}
  %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !codes -> !state
  // expected-error @+1 {{expected one region where keys or values come with scales, got a second: '!attn.kv<dense, heads = 8, dim = 64, key = f8E4M3FN, value = f8E4M3FN>'; nearest legal: elements of f16 or bf16 in all regions}}
  %2 = attn.update %1, %q, %b see causal scale 1.0 : !query, !codes -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!codes = !attn.kv<dense, heads = 8, dim = 64, key = f8E4M3FN, value = f8E4M3FN>
!state = !attn.state<heads = 8, value_dim = 64>
// expected-error @+1 {{multiplies keys and values as they are stored, f16 or bf16; got 'f8E4M3FN'; nearest legal: a schedule of kind mma}}
func.func @wgmma(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"})
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return
}
