// RUN: attn-opt %s --attn-make-kernels --attn-manage-pages --canonicalize | FileCheck %s
// RUN: attn-opt %s --emit=ptx --target=sm_90a --entry=merge -o - | FileCheck %s --check-prefix=MERGE
// RUN: attn-opt %s --emit=ptx --target=sm_90a --entry=exchange -o - | FileCheck %s --check-prefix=EXCHANGE

// CHECK-LABEL: func.func @merge_states(
// CHECK-NOT: tile.signal
// CHECK: tile.reciprocal
// CHECK: math.fma
// CHECK: arith.truncf %{{.*}} : f32 to bf16

// A warp writes to every region before it signals, and all lanes signal before one waits.
// CHECK-LABEL: func.func @exchange_states(
// CHECK: tile.wait_previous
// CHECK: tile.write_adjacent %{{.*}}, %{{.*}} to %[[MEMORY:arg4]]
// CHECK: tile.sync warp
// CHECK: tile.signal %{{.*}} to %[[MEMORY]]
// CHECK: tile.sync warp
// CHECK: tile.wait_signal %[[MEMORY]]
// CHECK: tile.sync warp
// CHECK: tile.reciprocal
// CHECK: arith.truncf %{{.*}} : f32 to f16

// MERGE: .visible .entry merge_states(
// MERGE-NOT: .sys
// EXCHANGE: .visible .entry exchange_states(
// EXCHANGE: st.release.sys.global.b32
// EXCHANGE: ld.acquire.sys.global.b32
// EXCHANGE: %globaltimer
func.func @merge(%result: tensor<?x?xi32> {attn.name = "result"}, %total: tensor<?xf32> {attn.name = "total"},
                 %memory: tensor<4x?xi32> {attn.name = "memory"}) {
  attn.merge_states %memory to %result, %total ranks 4 element bf16 : tensor<?x?xi32>, tensor<?xf32>, tensor<4x?xi32>
  return
}

func.func @exchange(%result: tensor<?x?xi32> {attn.name = "result"}, %total: tensor<?xf32> {attn.name = "total"},
                    %out: tensor<?x?xi32> {attn.name = "out"}, %lse: tensor<?xf32> {attn.name = "lse"},
                    %memory: tensor<?x?xi32> {attn.name = "memory"}, %places: tensor<2x2xi32> {attn.name = "places"},
                    %state: tensor<2052xi32> {attn.name = "state"}, %status: tensor<2xi32> {attn.name = "status"}) {
  attn.exchange_states %out, %lse through %memory at %places state %state status %status to %result, %total
      ranks 2 element f16
      : tensor<?x?xi32>, tensor<?xf32>, tensor<?x?xi32>, tensor<?xf32>, tensor<?x?xi32>, tensor<2x2xi32>, tensor<2052xi32>,
        tensor<2xi32>
  return
}
