// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate))' | FileCheck %s

// A function that asks for the significance of its tokens has one more kernel for each region, after those that
// finish rows.

!q = tensor<?x6x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i4, per = 64>>
!lse = tensor<?x6xf32>
!state = !attn.state<heads = 6, value_dim = 64>
#rows = #tile.schedule<mma, rows = 16, keys = 128, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
#tokens = #tile.schedule<mma, rows = 64, keys = 16, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>

func.func @f(%q: !q {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!q, !lse)
    attributes {attn.significance = "max", attn.significance_rows = 64 : i32,
                tile.schedules = [#rows], tile.merge_schedule = #merge, tile.token_schedule = #tokens} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %a see window(9) scale 0.125 : !q, !kv -> !state
  %2 = attn.update %1, %q, %b see causal scale 0.125 : !q, !kv -> !state
  %o, %lse = attn.finish %2 : !state -> !q, !lse
  return %o, %lse : !q, !lse
}

// A kernel of few rows stores scores if the plan says so.
// CHECK-LABEL: func.func @f_rows16(
// CHECK-SAME: attn.stores_scores
// CHECK-NOT: significance
// CHECK: attn.finish
// The launch after the merge begins beside it.
// CHECK-LABEL: func.func @f_merge(
// CHECK-NOT: significance
// CHECK-SAME: attn.starts_next
// CHECK-NOT: significance
// CHECK: attn.finish

// CHECK-LABEL: func.func @f_significance64_a(
// CHECK-SAME: attn.first_end = 0 : i32
// CHECK-SAME: attn.operand = 0 : i32
// CHECK-NEXT: %[[A0:.*]] = attn.init_significance %arg1 : {{.*}} -> !attn.significance<of = max, heads = 6>
// CHECK-NEXT: %[[A1:.*]] = attn.update %[[A0]], %arg0, %arg1 see window(9)
// CHECK-NEXT: attn.write_significance %[[A1]] of %arg1
// CHECK-NEXT: return{{$}}

// CHECK-LABEL: func.func @f_significance64_b(
// CHECK-SAME: attn.first_end = 1 : i32
// CHECK: attn.update %{{.*}}, %arg0, %arg2 see causal
