// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// If a task's rows reach over more tokens than a tile has, warpgroups before the last finish a causal segment
// earlier, by whole tiles: by as many tokens as rows follow theirs. The plan says where rows follow each other.
// Elsewhere all warpgroups go to the end, and warpgroups without rows compute nothing.

!query = tensor<?x8x64xbf16>
!dense = !attn.kv<dense, heads = 8, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#rows192 = #tile.schedule<wgmma, rows = 192, keys = 128, warps = 12, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4>

gpu.module @kernels {
  func.func @prefill(%q: !query {attn.name = "q"}, %kv: !dense {attn.name = "kv"}) -> !query attributes {tile.schedule = #rows192} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !dense -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}

// CHECK: %[[GROUP:.*]] = arith.muli {{.*}}, %c64_i32
// CHECK: %[[TASK:.*]]:8 = tile.record
// CHECK: %[[LAST:.*]] = arith.addi %[[GROUP]], %c63_i32
// CHECK: arith.minsi %[[LAST]],
// CHECK: %[[BIT:.*]] = arith.andi %[[TASK]]#6, %c2_i32
// CHECK: %[[FOLLOW:.*]] = arith.cmpi ne, %[[BIT]], %c0_i32
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[GROUP]], %[[TASK]]#1
// CHECK: %[[ROWS:.*]] = arith.select %[[FOLLOW]], %{{.*}}, %c1073741823_i32
// CHECK: %[[PAST:.*]] = arith.select %[[SOME]], %[[ROWS]], %c-1073741823_i32
// CHECK: scf.for
// CHECK-NEXT: %[[SEGMENT:.*]]:8 = tile.record
// CHECK: %[[END:.*]] = arith.addi %[[SEGMENT]]#5, %[[PAST]]
// CHECK: scf.for %[[KEY:.*]] = %[[SEGMENT]]#2 to %[[SEGMENT]]#3
// CHECK-NEXT: attn.tokens
// CHECK-NEXT: %[[SEES:.*]] = arith.cmpi slt, %[[KEY]], %[[END]]
// CHECK-NEXT: scf.if %[[SEES]]
// CHECK-NEXT: attn.update
