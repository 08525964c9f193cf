// RUN: attn-opt %s --attn-walk-plan | FileCheck %s
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=STAGED

// A kernel with stationary tokens walks the rows that see them, of all heads of the group.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!gradient = !attn.gradient<of = tokens, heads = 4, key_dim = 64, value_dim = 64>
#schedule = #tile.schedule<mma, rows = 64, keys = 32, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  func.func @tokens(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {note, tile.schedule = #schedule} {
    %0 = attn.init_gradient %kv : !kv -> !gradient
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !gradient
    attn.write_gradient %1 of %kv : !gradient of !kv
    return
  }
}

// CHECK: func.func @tokens(
// Attributes that are not attn's stay, for passes of others.
// CHECK-SAME: note, {{.*}}tile.launch = {grid = "plan.token_tasks", if_filled, role = "gradient"}
// CHECK: %[[BLOCK:.*]] = tile.block_id
// CHECK: %[[TASK:.*]]:10 = tile.record %{{.*}}[%[[BLOCK]]]
// CHECK: %[[TOKENS:.*]] = attn.tokens %arg1[%[[TASK]]#1] from %[[TASK]]#2 to %[[TASK]]#3
// CHECK: %[[ZEROS:.*]] = attn.init_gradient %[[TOKENS]]
// Two heads to a group: twice as many packed rows.
// CHECK: %[[BEGIN:.*]] = arith.muli %[[TASK]]#5, %c2_i32
// CHECK: %[[END:.*]] = arith.muli %[[TASK]]#6, %c2_i32
// CHECK: %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[ZEROS]])
// CHECK: %[[ROWS:.*]] = attn.rows %arg0[{{.*}}] head %[[TASK]]#4 ordinal %[[TASK]]#4
// CHECK: attn.update %[[SO_FAR]], %[[ROWS]], %[[TOKENS]] see causal
// CHECK: tile.stages = 2
// CHECK: attn.write_gradient %[[SUM]] of %[[TOKENS]] partial %[[TASK]]#8

// Tokens are copied once, and rows into rings: queries and the gradients of the output.
// STAGED: tile.alloc : !tile.ring<2, <query 32, feature 64, bf16>>
// STAGED: tile.alloc : !tile.ring<2, <query 32, feature 64, bf16>>
// STAGED: tile.alloc : !tile.shared<key 64, feature 64, bf16>
// STAGED: tile.alloc : !tile.shared<key 64, feature 64, bf16>
// STAGED: tile.gather block {{.*}} -> !tile.shared<key 64, feature 64, bf16>, !tile.shared<key 64, feature 64, bf16>
// STAGED: attn.init_gradient
// STAGED: scf.for
// STAGED: tile.gather block {{.*}}strides [64, 64]
// STAGED: tile.commit
// STAGED-NEXT: tile.wait 0
// STAGED-NEXT: tile.sync block
// STAGED: attn.update
// STAGED-NEXT: tile.sync block
// STAGED: attn.write_gradient
// STAGED-NEXT: tile.sync block

// A kernel that already walks its plan stays unchanged.
// RUN: attn-opt %s --attn-walk-plan -o %t.mlir
// RUN: attn-opt %t.mlir --attn-walk-plan 2>/dev/null | diff %t.mlir -
