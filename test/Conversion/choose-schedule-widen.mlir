// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a 2>&1 | FileCheck %s
// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=mma" | FileCheck %s --check-prefix=MMA

// Producers widen quantized keys and values for wgmma. Queries of bf16 become f16 in registers, which leaves tiles of
// 96 keys; those of f16 stay in shared memory.

!halves = tensor<?x8x128xf16>
!query = tensor<?x8x128xbf16>
!state = !attn.state<heads = 8, value_dim = 128>
!codes = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 32>>
!floats = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E5M2, per = tensor>>

// CHECK: remark: schedule wgmma for prefill
// CHECK: remark: schedule mma instead of wgmma: wgmma reads keys and values from shared memory as they are, and does not multiply !attn.quantized<f8E4M3FN, per = token>
// CHECK: func.func @integers
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 96, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = true, producers = 4, {{[^>]*}} query_copy = gather, key_copies = [gather]
// MMA: func.func @integers
// MMA-NOT: wgmma
func.func @integers(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK: func.func @floats
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4,
func.func @floats(%q: !halves {attn.name = "q"}, %kv: !floats {attn.name = "kv"}) -> !halves {
  %0 = attn.init %q : !halves -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !halves, !floats -> !state
  %o = attn.finish %1 : !state -> !halves
  return %o : !halves
}

// Scales of tokens beside floats, several groups of keys, a plain part, two regions and other dims stay with mma.
!tokens = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<f8E4M3FN, per = token>, value = !attn.quantized<f8E4M3FN, per = token>>
// CHECK: func.func @tokens
// CHECK-NOT: wgmma
func.func @tokens(%q: !query {attn.name = "q"}, %kv: !tokens {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !tokens -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
!groups = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i8, per = 64>>
// CHECK: func.func @groups
// CHECK-NOT: wgmma
func.func @groups(%q: !query {attn.name = "q"}, %kv: !groups {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !groups -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
!plain = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = bf16>
// CHECK: func.func @plain
// CHECK-NOT: wgmma
func.func @plain(%q: !query {attn.name = "q"}, %kv: !plain {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !plain -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
// CHECK: func.func @regions
// CHECK-NOT: wgmma
func.func @regions(%q: !query {attn.name = "q"}, %kv: !codes {attn.name = "kv"}, %new: !codes {attn.name = "new"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see all scale 0.125 : !query, !codes -> !state
  %2 = attn.update %1, %q, %new see causal scale 0.125 : !query, !codes -> !state
  %o = attn.finish %2 : !state -> !query
  return %o : !query
}
!long = tensor<?x8x96xbf16>
!longs = !attn.kv<paged<16>, heads = 2, dim = 96, key = !attn.quantized<i8, per = 96>, value = !attn.quantized<i8, per = 96>>
// CHECK: func.func @dims
// CHECK-NOT: wgmma
func.func @dims(%q: !long {attn.name = "q"}, %kv: !longs {attn.name = "kv"}) -> !long {
  %0 = attn.init %q : !long -> !attn.state<heads = 8, value_dim = 96>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !long, !longs -> !attn.state<heads = 8, value_dim = 96>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 96> -> !long
  return %o : !long
}
