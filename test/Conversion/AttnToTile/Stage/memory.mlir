// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s

// A tile of quantized values has metadata beside it, and kinds of regions share memory where they can.

!coded_query = tensor<?x8x128xbf16>
!coded_state = !attn.state<heads = 8, value_dim = 128>
!high = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!low = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>

#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!gradient = !attn.gradient<of = tokens, heads = 4, key_dim = 64, value_dim = 64>
#tokens = #tile.schedule<wgmma, rows = 128, keys = 32, warps = 8, stages = 3, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 24, consumer_registers = 240, query_stages = 1, query_copy = boxes 32, key_copies = [boxes 128], value_copies = [boxes 128], value_boxes = 0, ping_pong = false, epilogue = store>

gpu.module @kernels {
  func.func @two(%q: !coded_query {attn.name = "q"}, %high: !high {attn.name = "high"}, %low: !low {attn.name = "low"}) -> !coded_query
      attributes {tile.schedule = #rows16} {
    %0 = attn.init %q : !coded_query -> !coded_state
    %1 = attn.update %0, %q, %high see all scale 1.0 : !coded_query, !high -> !coded_state
    %2 = attn.update %1, %q, %low see all scale 1.0 : !coded_query, !low -> !coded_state
    %o = attn.finish %2 : !coded_state -> !coded_query
    return %o : !coded_query
  }
  func.func @joined(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedule = #tokens} {
    %0 = attn.init_gradient %kv : !kv -> !gradient
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !q, !kv -> !gradient
    attn.write_gradient %1 of %kv : !gradient of !kv
    return
  }
  func.func @apart(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) attributes {tile.schedule = #tokens} {
    %0 = attn.init_gradient %kv : !kv -> !gradient
    %1 = attn.update %0, %q, %kv see window(9) scale 0.125 : !q, !kv -> !gradient
    attn.write_gradient %1 of %kv : !gradient of !kv
    return
  }
}

// With two kinds of regions, a ring takes the memory of a ring of the other kind that has the same number of bytes.
// CHECK-LABEL: func.func @two(
// CHECK: tile.alloc : !tile.shared<query 16,
// CHECK-NEXT: %[[K8:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 128, i8>>
// CHECK-NEXT: %[[V4:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 128, i4>>
// CHECK-NEXT: %[[KMETA:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 2, f16>>
// CHECK-NEXT: %[[VMETA:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 2, f16>>
// CHECK-NEXT: tile.alloc overlays %[[V4]] : {{.*}} {per_warp} : !tile.ring<2, <key 16, feature 128, i4>>
// CHECK-NEXT: tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 128, i2>>
// CHECK-NEXT: tile.alloc overlays %[[KMETA]] : {{.*}} {per_warp} : !tile.ring<2, <key 16, feature 2, f16>>
// CHECK-NEXT: tile.alloc overlays %[[VMETA]] : {{.*}} {per_warp} : !tile.ring<2, <key 16, feature 2, f16>>
// CHECK: attn.staged %{{.*}} in keys %{{.*}}, values %{{.*}}, key_meta %{{.*}}, value_meta %{{.*}} :

// The task is read first. Stationary parts have one tile, and three numbers of a row lie in one tile.
// CHECK-LABEL: func.func @joined(
// CHECK: tile.record
// CHECK-NEXT: tile.alloc : !tile.ring<1, <key 128, feature 64, bf16>>
// CHECK-NEXT: tile.alloc : !tile.ring<1, <key 128, feature 64, bf16>>
// CHECK-NEXT: tile.alloc : !tile.ring<3, <query 32, feature 64, bf16>>
// CHECK-NEXT: tile.alloc : !tile.ring<3, <query 32, feature 64, bf16>>
// CHECK-NEXT: %[[NUMBERS:.*]] = tile.alloc : !tile.ring<3, <query 96, feature 1, f32>>
// CHECK-NOT: tile.alloc
// CHECK: %[[ALL:.*]] = tile.produce %[[NUMBERS]] warp 0
// CHECK: %[[LSE:.*]] = tile.overlay %[[ALL]]
// CHECK: %[[DELTA:.*]] = tile.overlay %[[ALL]]
// CHECK: %[[POSITION:.*]] = tile.overlay %[[ALL]]
// CHECK: attn.staged %{{.*}} in query %{{.*}}, output_grad %{{.*}}, lse %[[LSE]], delta %[[DELTA]], position %[[POSITION]]

// Beside the ends of windows numbers are read late, and each kind has an mbarrier of its own.
// CHECK-LABEL: func.func @apart(
// CHECK: %[[LSES:.*]] = tile.alloc : !tile.ring<3, <query 32, feature 1, f32>>
// CHECK-NEXT: %[[DELTAS:.*]] = tile.alloc : !tile.ring<3, <query 32, feature 1, f32>>
// CHECK-NEXT: %[[POSITIONS:.*]] = tile.alloc : !tile.ring<3, <query 32, feature 1, i32>>
// CHECK: tile.produce %[[LSES]] warp 0
// CHECK: tile.produce %[[DELTAS]] warp 1
// CHECK: tile.produce %[[POSITIONS]] warp 0
