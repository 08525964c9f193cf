// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// A state that is finished early continues: its results are written after the last segment of the first operand. A
// task's flags hold the number of such segments.

!query = tensor<?x8x64xbf16>
!dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x8xf32>
!state = !attn.state<heads = 8, value_dim = 64>
#rows128 = #tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>

gpu.module @kernels {
  func.func @both(%q: !query {attn.name = "q"}, %a: !dense {attn.name = "a"}, %b: !dense {attn.name = "b"}) -> (!query, !lse, !query, !lse) attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %a see causal scale 1.0 : !query, !dense -> !state
    %n, %m = attn.finish %1 {attn.first} : !state -> !query, !lse
    %2 = attn.update %1, %q, %b see causal scale 1.0 : !query, !dense -> !state
    %o, %l = attn.finish %2 : !state -> !query, !lse
    return %o, %l, %n, %m : !query, !lse, !query, !lse
  }
}

// CHECK: func.func @both(
// CHECK-SAME: #tile.parameter<buffer, "lse">, #tile.parameter<buffer, "first_o">, #tile.parameter<buffer, "first_lse">
// CHECK: %[[TASK:.*]]:8 = tile.record
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK: scf.for %[[J:.*]] = %[[TASK]]#3 to %[[TASK]]#4
// CHECK: %[[TILES:.*]] = scf.for
// CHECK: attn.one_of
// CHECK: %[[COUNT:.*]] = arith.shrui %[[TASK]]#6, %c8_i32
// CHECK: %[[BEHIND:.*]] = arith.addi %[[J]], %c1_i32
// CHECK: %[[END:.*]] = arith.addi %[[TASK]]#3, %[[COUNT]]
// CHECK: %[[LAST:.*]] = arith.cmpi eq, %[[BEHIND]], %[[END]]
// CHECK: scf.if %[[LAST]] {
// CHECK-NEXT: %[[N:.*]], %[[M:.*]] = attn.finish %[[TILES]] of %[[ROWS]] {attn.first}
// CHECK: attn.write %[[N]], %[[M]] of %[[ROWS]] part %{{.*}} {attn.first}
// CHECK: scf.yield %[[TILES]]
// CHECK: attn.finish %{{[0-9]*}} of %{{[0-9]*}} :
