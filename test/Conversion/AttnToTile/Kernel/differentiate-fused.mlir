// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate))' | FileCheck %s
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate,attn-sum-parts,attn-walk-plan))' | FileCheck %s --check-prefix=WALKED

// If kernels with stationary tokens add to the gradient of rows, too, two kernels with stationary rows see no
// token.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x4xf32>
!state = !attn.state<heads = 4, value_dim = 64>
#rows = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>
#tokens = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>

func.func @f(%q: !q {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!q, !lse)
    attributes {attn.backward, attn.fused, tile.schedules = [#rows], tile.token_schedule = #tokens} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %a see window(9) scale 0.125 : !q, !kv -> !state
  %2 = attn.update %1, %q, %b see causal scale 0.125 : !q, !kv -> !state
  %o, %lse = attn.finish %2 : !state -> !q, !lse
  return %o, %lse : !q, !lse
}

// CHECK-LABEL: func.func @f_begin64(
// CHECK-NEXT: %[[R0:.*]] = attn.init_gradient %arg0 with_lse kv_heads 2
// CHECK-NEXT: attn.write_gradient sums %[[R0]] of %arg0
// CHECK-NEXT: return{{$}}

// CHECK-LABEL: func.func @f_tokens64_a(
// CHECK-NEXT: %[[A0:.*]] = attn.init_gradient adds_rows %arg1
// CHECK-NEXT: %[[A1:.*]] = attn.update %[[A0]], %arg0, %arg1 see window(9)
// CHECK-NEXT: attn.write_gradient %[[A1]] of %arg1

// CHECK-LABEL: func.func @f_tokens64_b(
// CHECK-NEXT: attn.init_gradient adds_rows %arg2

// One kernel adds up parts of the tasks of all regions; --attn-sum-parts writes it.
// CHECK-LABEL: func.func @f_sum(
// CHECK-SAME: attn.sums_parts

// CHECK-LABEL: func.func @f_end64(
// CHECK-NEXT: %[[E0:.*]] = attn.init_gradient summed %arg0 kv_heads 2
// CHECK-NEXT: attn.write_gradient %[[E0]] of %arg0
// CHECK-NEXT: return{{$}}

// The rows are those of all heads in memory order, sixty-four at a time, and blocks that run at once have
// neighbouring rows: no task is read.
// WALKED-LABEL: func.func @f_begin64(
// WALKED-SAME: tile.launch = {grid = "plan.starts", role = "gradient"}
// WALKED-SAME: #tile.parameter<dim, "rows">
// WALKED-NOT: tile.record
// WALKED: %[[ALL:.*]] = arith.muli %{{.*}}, %c4_i32
// WALKED: %[[TILES:.*]] = arith.divui %{{.*}}, %c64_i32
// WALKED: %[[BLOCK:.*]] = tile.block_id
// WALKED: %[[BLOCKS:.*]] = tile.block_count
// WALKED: scf.for %[[TILE:.*]] = %[[BLOCK]] to %[[TILES]] step %[[BLOCKS]]
// WALKED: %[[FIRST:.*]] = arith.muli %[[TILE]], %c64_i32
// WALKED: %[[LEFT:.*]] = arith.subi %[[ALL]], %[[FIRST]]
// WALKED: %[[COUNT:.*]] = arith.minsi %[[LEFT]], %c64_i32
// WALKED: %[[ROWS:.*]] = attn.rows %arg0[%[[FIRST]] for %[[COUNT]]]
// WALKED-NEXT: %[[G:.*]] = attn.init_gradient %[[ROWS]] with_lse kv_heads 2
// WALKED-NEXT: attn.write_gradient sums %[[G]] of %[[ROWS]]
// WALKED-NEXT: }

// Rows are walked from the end that the task names first, in tiles that begin with its first row either way.
// WALKED-LABEL: func.func @f_tokens64_b(
// WALKED: %[[TOKENS:.*]]:10 = tile.record
// WALKED: %[[BACKWARDS:.*]] = arith.cmpi slt, %[[TOKENS]]#6, %[[TOKENS]]#5
// WALKED-DAG: %[[FIRST:.*]] = arith.minsi %[[TOKENS]]#5, %[[TOKENS]]#6
// WALKED-DAG: %[[LAST:.*]] = arith.maxsi %[[TOKENS]]#5, %[[TOKENS]]#6
// WALKED: %[[BEGIN:.*]] = arith.muli %[[FIRST]], %c2_i32{{.*}}
// WALKED: %[[TILES:.*]] = arith.divui
// WALKED: scf.for %[[I:.*]] = %c0_i32{{.*}} to %[[TILES]]
// WALKED: %[[BEFORE:.*]] = arith.subi %[[TILES]], %c1_i32{{.*}}
// WALKED-NEXT: %[[FALLING:.*]] = arith.subi %[[BEFORE]], %[[I]]
// WALKED-NEXT: %[[TILE:.*]] = arith.select %[[BACKWARDS]], %[[FALLING]], %[[I]]
// WALKED: arith.muli %[[TILE]], %c32_i32
