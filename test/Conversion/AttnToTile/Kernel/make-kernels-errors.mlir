// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-make-kernels

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

// expected-error @+1 {{has no attention at the online level}}
func.func @none(%q: !query {attn.name = "q"}) attributes {tile.schedules = [#rows16]} {
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @two(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  // expected-error @+1 {{expected one attention per function, found a second}}
  %p = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func private @state() -> !state
func.func @unknown(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  // expected-note @+1 {{this operation is none of these}}
  %0 = func.call @state() : () -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected a state that is made by attn.init, attn.update and attn.merge}}
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @warps(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected an operation that commutes with attn.merge: each part of a split task does it, and the kernel that merges parts does not}}
  %2 = attn.warps %1 : !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @two_queries(%q: !query {attn.name = "q"}, %p: !query {attn.name = "p"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected the query of the first attn.init: one kernel has one query}}
  %2 = attn.init %p : !query -> !state
  %3 = attn.merge %1, %2 : !state
  %o = attn.finish %3 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @nothing(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-error @+1 {{expected a region of which something is visible}}
  %o = attn.finish %0 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @query_name(%q: !query, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  // expected-error @+1 {{expected the query to be an argument of the function, with an attn.name}}
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @kv_name(%q: !query {attn.name = "q"}, %kv: !kv) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-error @+1 {{expected the region to be an argument of the function, with an attn.name}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @output_scale_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %s: tensor<1xf32>) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected the output scale to be an argument of the function, with an attn.name}}
  %o = attn.finish %1 output_scale %s : !state output_scale tensor<1xf32> -> tensor<?x8x64xf8E4M3FN>
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @output_without_scale(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected output elements of the query's type, 'bf16', got 'tensor<?x8x64xf8E4M3FN>'}}
  %o = attn.finish %1 : !state -> tensor<?x8x64xf8E4M3FN>
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @gate_of_another_type(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %g: tensor<?x8xf16> {attn.name = "gate"}, %s: tensor<1xf32> {attn.name = "output_scale"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected a gate of the query's type, 'bf16', got 'tensor<?x8xf16>'}}
  %o = attn.finish %1 gate %g output_scale %s : !state gate tensor<?x8xf16> output_scale tensor<1xf32> -> tensor<?x8x64xf8E4M3FN>
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @sinks_name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %s: tensor<8xf32>) attributes {tile.schedules = [#rows16]} {
  // expected-error @+1 {{expected the sink logits to be an argument of the function, with an attn.name}}
  %0 = attn.init %q sinks %s : !query, tensor<8xf32> -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

// expected-error @+1 {{argument #2 has no name: expected an attribute attn.name = "..."}}
func.func @name(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %unused: tensor<8xf32>) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @output(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected output elements of the query's type, 'bf16', got 'tensor<?x8x64xf16>'}}
  %o = attn.finish %1 : !state -> tensor<?x8x64xf16>
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @query(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %p: !query {attn.name = "p"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first update}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected the query of its attn.init: one kernel has one state}}
  %2 = attn.update %1, %p, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @heads(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %few: !attn.kv<dense, heads = 4, dim = 64, key = bf16, value = bf16> {attn.name = "few"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first update}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected the KV heads of the first region: one kernel has one state}}
  %2 = attn.update %1, %q, %few see causal scale 1.0 : !query, !attn.kv<dense, heads = 4, dim = 64, key = bf16, value = bf16> -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @scale(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first update}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected the scale of the first update: one kernel has one state}}
  %2 = attn.update %1, %q, %kv see causal scale 2.0 : !query, !kv -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @score(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first update}}
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  // expected-error @+1 {{expected a score region like the first update: one kernel has one state}}
  %2 = attn.update %1, %q, %kv see causal scale 1.0 score {
  ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
    attn.yield %s : f32
  } : !query, !kv -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @head_classes(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %c: tensor<8xi32> {attn.name = "classes"})
    attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q : !query -> !state
  // expected-note @+1 {{the first update}}
  %1 = attn.update %0, %q, %kv see causal heads %c {a: see all, b: see recent(7)} scale 1.0 : !query, !kv, tensor<8xi32> -> !state
  // expected-error @+1 {{expected the head classes of the first update: one kernel has one state}}
  %2 = attn.update %1, %q, %kv see causal heads %c {a: see all, b: see recent(8)} scale 1.0 : !query, !kv, tensor<8xi32> -> !state
  %o = attn.finish %2 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true, query_in_registers = true>

func.func @classes_argument(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedules = [#rows16]} {
  %c = arith.constant dense<0> : tensor<8xi32>
  %0 = attn.init %q : !query -> !state
  // expected-error @+1 {{expected the head classes to be assigned by an argument of the function, with an attn.name}}
  %1 = attn.update %0, %q, %kv see causal heads %c {a: see all, b: see recent(7)} scale 1.0 : !query, !kv, tensor<8xi32> -> !state
  %o = attn.finish %1 : !state -> !query
  return
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

// The merge has no schedule.
// expected-error @+1 {{has schedules that leave something open; --attn-choose-schedule completes them}}
func.func @no_merge(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query attributes {
    tile.schedules = [#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 1, split_keys = true,
                                     query_in_registers = true>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// -----

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

// The schedule does not say which warps copy.
// expected-error @+1 {{has schedules that leave something open; --attn-choose-schedule completes them}}
func.func @no_roles(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query attributes {
    tile.merge_schedule = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>,
    tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false,
                                     query_in_registers = false>]} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}
