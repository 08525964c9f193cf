// RUN: attn-opt %s --attn-make-kernels --attn-write-plan | FileCheck %s

// A function that is marked `attn.plans` becomes a kernel that makes plans: from tables alone, in scratch memory of
// each block, with sums over all threads of a block.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 64>
#merge = #tile.merge_schedule<warps = 4, blocks = 5, parts = 16>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>

func.func @f(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query
    attributes {tile.schedules = [#rows16], tile.merge_schedule = #merge, attn.device_plan} {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
  %o = attn.finish %1 : !state -> !query
  return %o : !query
}

// CHECK: func.func @f_rows16(
// CHECK-NOT: attn.device_plan
// CHECK: func.func @f_merge(
// CHECK: func.func @f_plan(
// CHECK-SAME: tile.launch = {grid = "plan.tasks", pieces = 1 : i32, role = "plan", rows_per_warp = 8 : i32}
// CHECK-SAME: #tile.parameter<buffer, "plan.scratch"
// CHECK-SAME: tile.threads = 512
// CHECK: %[[EXCHANGE:.*]] = tile.alloc : !tile.scratch<256>
// The work tiles of sequences, and the check of the inputs.
// CHECK: scf.for
// CHECK: tile.read {{.*}} : <i32> -> i32
// CHECK: tile.scan %{{.*}}, %{{.*}} in %[[EXCHANGE]] warps 16
// CHECK: tile.scan
// CHECK: tile.sync block
// CHECK-NOT: attn.
// CHECK: tile.write_adjacent
