// RUN: attn-opt %s | attn-opt | FileCheck %s

// Operations of a kernel's loops print as they are parsed.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>

func.func @ops(%q: !query, %kv: !kv, %i: i32, %row: i64, %lse: f32, %sink: i1, %k: !tile.shared<key 16, feature 64, bf16>) {
  // CHECK: attn.rows %arg0[%arg2 for %arg2] head %arg2 ordinal %arg2 from %arg2 : tensor<?x8x64xbf16>
  %r0 = attn.rows %q [%i for %i] head %i ordinal %i from %i : !query
  // CHECK: attn.rows {{.*}} class %arg2 sink %arg5 :
  %r = attn.rows %q [%i for %i] head %i ordinal %i from %i class %i sink %sink : !query
  // CHECK: attn.tokens %arg1[%arg2] from %arg2 to %arg2 full %arg2 to %arg2 pos0 %arg2 first_ordinal %arg2 :
  %t = attn.tokens %kv [%i] from %i to %i full %i to %i pos0 %i first_ordinal %i : !kv
  // CHECK: attn.staged %{{.*}} in keys %arg6, values %arg6 : {{.*}} in !tile.shared<key 16, feature 64, bf16>, !tile.shared
  %s = attn.staged %t in keys %k, values %k : !kv in !tile.shared<key 16, feature 64, bf16>, !tile.shared<key 16, feature 64, bf16>
  // CHECK: attn.tokens {{.*}} first_ordinal %arg2 head %arg2 warp %arg2 group %arg2 scores_behind %arg3 :
  %held = attn.tokens %kv [%i] from %i to %i full %i to %i pos0 %i first_ordinal %i head %i warp %i group %i scores_behind %row : !kv
  // CHECK: attn.rows {{.*}} all_heads :
  %all = attn.rows %q [%i for %i] head %i ordinal %i from %i all_heads : !query
  // CHECK: %[[P:.*]] = attn.parts %arg0 kv_heads 2 by_ordinal :
  %p = attn.parts %q kv_heads 2 by_ordinal : !query -> !state
  // CHECK: attn.stored[%arg2] lse %arg4 count %arg2 :
  %st = attn.stored [%i] lse %lse count %i : !state
  // CHECK: attn.warps %[[P]] :
  %w = attn.warps %p : !state
  %o, %l = attn.finish %w : !state -> !query, tensor<?x8xf32>
  // CHECK: attn.finish %{{.*}} of %{{.*}} : !attn.state<heads = 8, value_dim = 64> of tensor<?x8x64xbf16> ->
  %o2 = attn.finish %w of %r : !state of !query -> !query
  // CHECK: attn.tokens {{.*}} first_ordinal %arg2 begin %arg2 :
  %begun = attn.tokens %kv [%i] from %i to %i full %i to %i pos0 %i first_ordinal %i begin %i : !kv
  // CHECK: %[[NONE:.*]] = attn.no_parts : tensor<?x8x64xbf16>
  %none = attn.no_parts : !query
  // CHECK: attn.fold %{{.*}} of %{{.*}} part %arg2 after %[[NONE]] if %arg5 : tensor<?x8x64xbf16> of tensor<?x8x64xbf16> after tensor<?x8x64xbf16>
  %f = attn.fold %o of %r part %i after %none if %sink : !query of !query after !query
  // CHECK: attn.keep %{{.*}} of %{{.*}} part %arg2 : tensor<?x8x64xbf16> of tensor<?x8x64xbf16>
  attn.keep %f of %r part %i : !query of !query
  // CHECK: %result{{.*}}, %lse{{.*}} = attn.fold %{{.*}} of %{{.*}} : tensor<?x8x64xbf16> of tensor<?x8x64xbf16> lse tensor<?x8xf32>
  %f2, %l2 = attn.fold %f of %r : !query of !query lse tensor<?x8xf32>
  // CHECK: attn.write %{{.*}} of %{{.*}} part %arg2 : tensor<?x8x64xbf16> of tensor<?x8x64xbf16>
  attn.write %o of %r part %i : !query of !query
  // CHECK: attn.write %{{.*}}, %{{.*}} to %arg3 : tensor<?x8x64xbf16>, tensor<?x8xf32>
  attn.write %o, %l to %row : !query, tensor<?x8xf32>
  // CHECK: attn.write %{{.*}} of %{{.*}} part %arg2 gate %arg0 : tensor<?x8x64xbf16> of tensor<?x8x64xbf16> gate tensor<?x8x64xbf16>
  attn.write %o of %r part %i gate %q : !query of !query gate !query
  return
}

// CHECK: func.func private @form() attributes {attn.form = #attn.form<mmas = wgmma, stationary = tokens, rows = 64, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = bf16, traits = tokens_first|lists, codes = i4, unit = 5.000000e-01 : f32>}
func.func private @form() attributes {attn.form = #attn.form<mmas = wgmma, stationary = tokens, rows = 64, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = bf16, traits = tokens_first | lists, codes = i4, unit = 0.5 : f32>}

// Warps that share rows have a slice of the values.
// CHECK: func.func private @slice() attributes {attn.form = #attn.form<{{.*}}value_dim = 512, key_tile = 576, value_tile = 256,
func.func private @slice() attributes {attn.form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 1, key_dim = 576, value_dim = 512, key_tile = 576, value_tile = 256, element = bf16, traits = none>}
