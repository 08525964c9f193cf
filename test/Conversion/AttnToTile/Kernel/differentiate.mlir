// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate))' | FileCheck %s

// A function that asks for its backward pass becomes a kernel with stationary rows and, for each region, a kernel
// with stationary tokens.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x4xf32>
!state = !attn.state<heads = 4, value_dim = 64>
#rows = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>
#tokens = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>

func.func @f(%q: !q {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!q, !lse)
    attributes {attn.backward, tile.schedules = [#rows], tile.token_schedule = #tokens} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %a see window(9) scale 0.125 : !q, !kv -> !state
  %2 = attn.update %1, %q, %b see causal scale 0.125 : !q, !kv -> !state
  %o, %lse = attn.finish %2 : !state -> !q, !lse
  return %o, %lse : !q, !lse
}

// CHECK-LABEL: func.func @f_rows64(
// CHECK-SAME: keys = 64
// CHECK-NEXT: %[[R0:.*]] = attn.init_gradient %arg0 with_lse : {{.*}} -> !attn.gradient<of = rows, heads = 4, key_dim = 64, value_dim = 64>
// CHECK-NEXT: %[[R1:.*]] = attn.update %[[R0]], %arg0, %arg1 see window(9)
// CHECK-NEXT: %[[R2:.*]] = attn.update %[[R1]], %arg0, %arg2 see causal
// CHECK-NEXT: attn.write_gradient %[[R2]] of %arg0
// CHECK-NEXT: return{{$}}

// CHECK-LABEL: func.func @f_tokens64_a(
// CHECK-SAME: attn.first_end = 0 : i32
// CHECK-SAME: attn.operand = 0 : i32
// CHECK-SAME: keys = 32
// CHECK-NEXT: %[[A0:.*]] = attn.init_gradient %arg1 with_lse : {{.*}} -> !attn.gradient<of = tokens
// CHECK-NEXT: %[[A1:.*]] = attn.update %[[A0]], %arg0, %arg1 see window(9)
// CHECK-NEXT: attn.write_gradient %[[A1]] of %arg1
// CHECK-NEXT: return{{$}}

// Its region's window is the function's first end; the ends of the next region are counted after it.
// CHECK-LABEL: func.func @f_tokens64_b(
// CHECK-SAME: attn.first_end = 1 : i32
// CHECK: attn.update %{{.*}}, %arg0, %arg2 see causal
// CHECK-NOT: attn.update
// CHECK-LABEL: func.func @f_sum(
