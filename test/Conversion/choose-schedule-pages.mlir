// RUN: attn-opt %s --attn-choose-schedule=target=sm_90a | FileCheck %s

// A tile is loaded in boxes that do not cross pages. The longest tile with long boxes is preferred; 784 = 16 * 49
// tokens have short ones only, as many as pages of 16 have.

!query = tensor<?x8x128xbf16>
!state = !attn.state<heads = 8, value_dim = 128>
!p528 = !attn.kv<paged<528>, heads = 8, dim = 128, key = bf16, value = bf16>
!p784 = !attn.kv<paged<784>, heads = 8, dim = 128, key = bf16, value = bf16>
!p1056 = !attn.kv<paged<1056>, heads = 8, dim = 128, key = bf16, value = bf16>
!p7 = !attn.kv<paged<7>, heads = 8, dim = 128, key = bf16, value = bf16>

// CHECK-LABEL: @of_528
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 96, {{.*}} key_copies = [boxes 48], value_copies = [boxes 48]
func.func @of_528(%q: !query {attn.name = "q"}, %kv: !p528 {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !p528 -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK-LABEL: @of_784
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, {{.*}} key_copies = [boxes 16], value_copies = [boxes 16]
func.func @of_784(%q: !query {attn.name = "q"}, %kv: !p784 {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !p784 -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK-LABEL: @of_1056
// CHECK-SAME: #tile.schedule<wgmma, rows = 128, keys = 128, {{.*}} key_copies = [boxes 32], value_copies = [boxes 32]
func.func @of_1056(%q: !query {attn.name = "q"}, %kv: !p1056 {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !p1056 -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// Lines of a swizzle repeat after eight: shorter pages are gathered.
// CHECK-LABEL: @of_7
// CHECK-SAME: #tile.schedule<wgmma, {{.*}} key_copies = [gather], value_copies = [gather]
func.func @of_7(%q: !query {attn.name = "q"}, %kv: !p7 {attn.name = "kv"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !p7 -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
