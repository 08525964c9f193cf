// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate))' | FileCheck %s
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate,attn-sum-parts,attn-walk-plan))' | FileCheck %s --check-prefix=WALKED

// If sums of rows have an order, the task of a block names the one whose terms come before.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 4, value_dim = 64>
#rows = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>
#tokens = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>

func.func @f(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !q
    attributes {attn.backward, attn.ordered, attn.fused, tile.schedules = [#rows], tile.token_schedule = #tokens} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !state
  %o = attn.finish %1 : !state -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @f_tokens64_kv(
// CHECK-NEXT: attn.init_gradient adds_rows in_order %arg1 :

// The last word of a task's record.
// WALKED-LABEL: func.func @f_tokens64_kv(
// WALKED: %[[RECORD:.*]]:10 = tile.record
// WALKED: attn.init_gradient adds_rows in_order %{{.*}} after %[[RECORD]]#9 :
