// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s

// The numbers of each row are loaded into registers where the rows are named.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!codes = !attn.kv<packed, heads = 2, dim = 64, key = !attn.quantized<i8, per = 64>, value = !attn.quantized<f8E4M3FN, per = head>>
!state = !attn.state<heads = 4, value_dim = 64>
!of_rows = !attn.gradient<of = rows, heads = 4, key_dim = 64, value_dim = 64>
!of_tokens = !attn.gradient<of = tokens, heads = 4, key_dim = 64, value_dim = 64>
#mma = #tile.schedule<mma, rows = 64, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = false, query_in_registers = false>
#wgmma = #tile.schedule<wgmma, rows = 128, keys = 32, warps = 8, stages = 3, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 24, consumer_registers = 240, query_stages = 1, query_copy = boxes 32, key_copies = [boxes 128], value_copies = [boxes 128], value_boxes = 0, ping_pong = false, epilogue = store>

gpu.module @kernels {
  func.func @attention(%q: !q {attn.name = "q"}, %kv: !codes {attn.name = "kv"}) -> !q attributes {tile.schedule = #mma} {
    %0 = attn.init %q : !q -> !state
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !codes -> !state
    %o = attn.finish %1 : !state -> !q
    return %o : !q
  }
  func.func @rows(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedule = #mma} {
    %0 = attn.init_gradient %q kv_heads 2 : !q -> !of_rows
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !of_rows
    attn.write_gradient %1 of %q : !of_rows of !q
    return
  }
  func.func @tokens(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedule = #mma} {
    %0 = attn.init_gradient %kv : !kv -> !of_tokens
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !of_tokens
    attn.write_gradient %1 of %kv : !of_tokens of !kv
    return
  }
  func.func @walked(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedule = #wgmma} {
    %0 = attn.init_gradient %kv : !kv -> !of_tokens
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !of_tokens
    attn.write_gradient %1 of %kv : !of_tokens of !kv
    return
  }
}

// Positions, heads, and a scale that all values of the task's head share.
// CHECK-LABEL: func.func @attention(
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK: %[[POSITIONS:.*]] = tile.load_vector
// CHECK: %[[HEADS:.*]] = tile.map
// CHECK: %[[SCALE:.*]] = tile.read
// CHECK-NEXT: %[[KNOWN:.*]] = attn.staged %[[ROWS]] in position %[[POSITIONS]], head %[[HEADS]], value_scale %[[SCALE]]
// CHECK-NEXT: attn.init %[[KNOWN]]
// CHECK: attn.write %{{.*}} of %[[KNOWN]]

// LSEs in log2: +inf for a row that sees nothing, and for lines past the last row.
// CHECK-LABEL: func.func @rows(
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK-COUNT-2: tile.load_vector
// CHECK: arith.cmpf une
// CHECK: %[[LSE:.*]] = tile.map
// CHECK: arith.cmpi slt
// CHECK: attn.staged %[[ROWS]] in position %{{.*}}, head %{{.*}}, lse %[[LSE]] :

// Rows that are walked also have a delta, which an earlier kernel has written.
// CHECK-LABEL: func.func @tokens(
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK: %[[DELTA:.*]] = tile.load_vector
// CHECK: %[[KNOWN:.*]] = attn.staged %[[ROWS]] in position %{{.*}}, head %{{.*}}, lse %{{.*}}, delta %{{.*}} :
// CHECK: attn.staged %[[KNOWN]] in query %{{.*}}, output_grad %{{.*}} :

// If producers copy them to shared memory, only heads are computed.
// CHECK-LABEL: func.func @walked(
// CHECK: %[[ROWS:.*]] = attn.rows
// CHECK-NOT: tile.load_vector
// CHECK: %[[KNOWN:.*]] = attn.staged %[[ROWS]] in head %{{.*}} :
// CHECK: attn.staged %[[KNOWN]] in query %{{.*}}, output_grad %{{.*}}, lse %{{.*}}, delta %{{.*}}, position %{{.*}} :
