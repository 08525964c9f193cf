// RUN: attn-opt %s --attn-walk-plan | FileCheck %s

// A kernel that merges walks the plan's list of rows, and 32 states of a row at a time.

!query = tensor<?x8x64xbf16>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
#sliced = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16, slices = 2>
!state = !attn.state<heads = 8, value_dim = 64>

gpu.module @kernels {
  func.func @merge(%q: !query {attn.name = "q"}) -> (!query, tensor<?x8xf32>) attributes {tile.merge_schedule = #merge} {
    %s = attn.parts %q kv_heads 2 : !query -> !state
    %o, %lse = attn.finish %s : !state -> !query, tensor<?x8xf32>
    return %o, %lse : !query, tensor<?x8xf32>
  }

  func.func @lets(%q: !query {attn.name = "q"}) -> (!query, tensor<?x8xf32>) attributes {attn.starts_next, tile.merge_schedule = #merge} {
    %s = attn.parts %q kv_heads 2 : !query -> !state
    %o, %lse = attn.finish %s : !state -> !query, tensor<?x8xf32>
    return %o, %lse : !query, tensor<?x8xf32>
  }

  func.func @shares(%q: !query {attn.name = "q"}) -> (!query, tensor<?x8xf32>) attributes {tile.merge_schedule = #sliced} {
    %s = attn.parts %q kv_heads 2 : !query -> !state
    %o, %lse = attn.finish %s : !state -> !query, tensor<?x8xf32>
    return %o, %lse : !query, tensor<?x8xf32>
  }
}

// CHECK: func.func @merge(%[[Q:arg0]]:
// CHECK-SAME: tile.blocks_per_sm = 5
// CHECK-SAME: #tile.parameter<buffer, "plan.merge_start">, #tile.parameter<buffer, "plan.merge_rows">,
// CHECK-SAME: #tile.parameter<buffer, "plan.merge_partials">
// CHECK-NOT: tile.start_next
// The number of rows stands before the starts of their lists.
// CHECK: %[[COUNT:.*]] = tile.read %{{.*}}[%c0_i64]
// The plan of the first row is read while the attention still runs.
// CHECK: %[[PLANNED:.*]]:4 = scf.if
// CHECK: tile.read_range
// CHECK: tile.wait_previous
// CHECK-NEXT: scf.for {{.*}} to %[[COUNT]] {{.*}} iter_args(%[[BEGIN:[^ ]*]] = %[[PLANNED]]#0, %[[END:[^ ]*]] = %[[PLANNED]]#1, %[[ROW:[^ ]*]] = %[[PLANNED]]#2, %[[FIRST:[^ ]*]] = %[[PLANNED]]#3)
// CHECK: %[[TARGET:.*]] = arith.extsi %[[ROW]]
// CHECK-NEXT: %[[EMPTY:.*]] = attn.init %[[Q]]
// CHECK: %[[ALL:.*]]:2 = scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] {{.*}} iter_args(%[[SO_FAR:[^ ]*]] = %[[EMPTY]], %[[NUMBER:[^ ]*]] = %[[FIRST]])
// CHECK: %[[STATE_LSE:.*]] = tile.read written
// CHECK: %[[LEFT:.*]] = arith.subi %[[END]], %[[I]]
// CHECK-NEXT: %[[STORED:.*]] = attn.stored[%[[NUMBER]]] lse %[[STATE_LSE]] count %[[LEFT]]
// CHECK-NEXT: %[[MERGED:.*]] = attn.merge %[[SO_FAR]], %[[STORED]]
// CHECK: scf.yield %[[MERGED]],
// CHECK: %[[O:.*]], %[[LSE:.*]] = attn.finish %[[ALL]]#0
// CHECK-NEXT: attn.write %[[O]], %[[LSE]] to %[[TARGET]]

// If another launch may start while this one waits, it is allowed to before anything is read; all threads wait.
// CHECK: func.func @lets(
// CHECK-NOT: tile.read
// CHECK: tile.start_next
// CHECK: tile.read_range
// CHECK: {{^    }}tile.wait_previous

// Two neighbouring warps share a row: a block has two, and a launch twice as many warps as rows.
// CHECK: func.func @shares(
// CHECK-SAME: pieces = 2 : i32
// CHECK: %[[BLOCK:.*]] = tile.block_id
// CHECK: %[[ROWS:.*]] = arith.muli %[[BLOCK]], %c2_i32
// CHECK: %[[OF_WARP:.*]] = arith.divui %{{.*}}, %c2_i32
// CHECK: arith.addi %[[ROWS]], %[[OF_WARP]]
// LSEs are read one round ahead, numbers two, as long as there are any.
// CHECK: %[[OF_PLAN:.*]]:4 = scf.if
// CHECK: tile.wait_previous
// CHECK: scf.for {{.*}} iter_args(%[[BEGIN:[^ ]*]] = %[[OF_PLAN]]#0, %[[END:[^ ]*]] = %[[OF_PLAN]]#1, {{.*}}, %[[FIRST:[^ ]*]] = %[[OF_PLAN]]#3)
// CHECK: %[[SECOND:.*]] = tile.read %arg
// CHECK: %[[LSE:.*]] = tile.read written
// CHECK: %[[ALL:.*]]:4 = scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] {{.*}} iter_args(%[[SO_FAR:[^ ]*]] = {{.*}}, %[[NUMBER:[^ ]*]] = %[[FIRST]], %[[NOW:[^ ]*]] = %[[LSE]], %[[NEXT:[^ ]*]] = %[[SECOND]])
// CHECK: %[[LEFT:.*]] = arith.subi %[[END]], %[[I]]
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[LEFT]], %{{.*}}
// CHECK-NEXT: %[[AHEAD:.*]]:2 = scf.if %[[MORE]]
// CHECK: arith.extsi %[[NEXT]]
// CHECK-NEXT: tile.read written
// CHECK: tile.read %arg
// CHECK: else
// CHECK-NEXT: scf.yield %[[NOW]], %[[NEXT]]
// CHECK: %[[STORED:.*]] = attn.stored[%[[NUMBER]]] lse %[[NOW]] count %[[LEFT]]
// CHECK-NEXT: %[[MERGED:.*]] = attn.merge %[[SO_FAR]], %[[STORED]]
// CHECK: scf.yield %[[MERGED]], %[[NEXT]], %[[AHEAD]]#0, %[[AHEAD]]#1
