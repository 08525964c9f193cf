// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-choose-schedule=schedule=mma --attn-make-kernels

// Producers widen no scales of tokens beside floats.
!query = tensor<?x8x64xbf16>
!codes = !attn.kv<dense, heads = 8, dim = 64, key = !attn.quantized<f8E4M3FN, per = token>, value = !attn.quantized<f8E4M3FN, per = head>>
!state = !attn.state<heads = 8, value_dim = 64>
// expected-error @+1 {{multiplies keys and values of f16 or bf16, and producers do not widen '!attn.quantized<f8E4M3FN, per = token>' here; nearest legal: a schedule of kind mma}}
func.func @wgmma(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"})
    attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return
}
