// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

!query = tensor<?x32x128xbf16>
!output = tensor<?x32x64xbf16>
!paged = !attn.kv<paged<16>, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>
!dense = !attn.kv<dense, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>
!packed = !attn.kv<packed, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>
!state = !attn.state<heads = 32, value_dim = 64>

// A value dim equal to the key dim is not printed.
// CHECK-LABEL: @types(!attn.kv<dense, heads = 1, dim = 64, key = f16, value = f16>, !attn.state<heads = 7, value_dim = 32>)
func.func private @types(!attn.kv<dense, heads = 1, dim = 64, value_dim = 64, key = f16, value = f16>, !attn.state<heads = 7, value_dim = 32>)

// CHECK-LABEL: @blocks(!attn.kv<packed, heads = 8, dim = 64, key = !attn.quantized<f8E5M2, per = 32, scale = f8E8M0FNU>, value = !attn.quantized<f4E2M1FN, per = 32, scale = f8E8M0FNU>>)
func.func private @blocks(!attn.kv<packed, heads = 8, dim = 64, key = !attn.quantized<f8E5M2, per = 32, scale = f8E8M0FNU>, value = !attn.quantized<f4E2M1FN, per = 32, scale = f8E8M0FNU>>)

// CHECK-LABEL: @blocks_beside_a_tensors_scale(!attn.kv<paged<16>, heads = 8, dim = 64, key = !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>, value = bf16>)
func.func private @blocks_beside_a_tensors_scale(!attn.kv<paged<16>, heads = 8, dim = 64, key = !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>, value = bf16>)
// CHECK-LABEL: @unified(!attn.kv<unified<32>, heads = 8, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>)
func.func private @unified(!attn.kv<unified<32>, heads = 8, dim = 64, key = !attn.quantized<i8, per = 64>, value = f16>)

// CHECK-LABEL: @ragged(!attn.kv<paged<16>, ragged, heads = 8, dim = 64, key = f16, value = f16>, !attn.kv<dense, ragged, heads = ?, {{.*}}>)
func.func private @ragged(!attn.kv<paged<16>, ragged, heads = 8, dim = 64, key = f16, value = f16>, !attn.kv<dense, ragged, heads = ?, dim = 64, key = f16, value = f16>)

// CHECK-LABEL: @regions
func.func @regions(%q: !query, %a: !dense, %b: !packed, %c: !paged) -> (!output, tensor<?x32xf32>) {
  // CHECK: attn.attend %{{.*}} over (%{{.*}} see all), (%{{.*}} see causal), (%{{.*}} see window(7)) scale 0.5
  // CHECK-SAME: : tensor<?x32x128xbf16>, !attn.kv<dense, heads = 8, dim = 128, value_dim = 64, key = bf16, value = bf16>,
  // CHECK-SAME: !attn.kv<packed, {{.*}}>, !attn.kv<paged<16>, {{.*}}> -> tensor<?x32x64xbf16>, tensor<?x32xf32>
  %o, %lse = attn.attend %q over (%a see all), (%b see causal), (%c see window(7)) scale 0.5
      : !query, !dense, !packed, !paged -> !output, tensor<?x32xf32>
  return %o, %lse : !output, tensor<?x32xf32>
}

// Scales print as the shortest decimal of their f32.
// CHECK-LABEL: @scales
func.func @scales(%q: !query, %a: !dense) {
  // CHECK: scale 0.08838835
  %0 = attn.attend %q over (%a see all) scale 0.0883883501 : !query, !dense -> !output
  // CHECK: scale 1.0
  %1 = attn.attend %q over (%a see all) scale 1.0 : !query, !dense -> !output
  // CHECK: scale 1.0e+10
  %2 = attn.attend %q over (%a see all) scale 1.0e10 : !query, !dense -> !output
  // CHECK: scale 1.5e-05
  %3 = attn.attend %q over (%a see all) scale 1.5e-5 : !query, !dense -> !output
  return
}

// The score region reads a bias and the sinks join the softmax; constants may come from outside.
// CHECK-LABEL: @score
func.func @score(%q: !query, %a: !dense, %sinks: tensor<32xf32>, %bias: tensor<32x?xf32>) -> !output {
  // CHECK: %[[C:.*]] = arith.constant 2.0
  %two = arith.constant 2.0 : f32
  // CHECK: attn.attend %{{.*}} over (%{{.*}} see all) sinks %{{.*}} score {
  // CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %[[H:.*]]: i32, %[[QP:.*]]: i32, %[[KP:.*]]: i32):
  // CHECK-NEXT: %[[B:.*]] = attn.read %{{.*}}[%[[H]], %[[KP]]] : tensor<32x?xf32>
  // CHECK-NEXT: %[[M:.*]] = arith.mulf %[[B]], %[[C]]
  // CHECK-NEXT: %[[R:.*]] = arith.addf %[[S]], %[[M]]
  // CHECK-NEXT: attn.yield %[[R]] : f32
  // CHECK-NEXT: } {note = "kept"} : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, tensor<32xf32> -> tensor<?x32x64xbf16>
  %o = attn.attend %q over (%a see all) sinks %sinks score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %b = attn.read %bias[%head, %k_pos] : tensor<32x?xf32>
      %m = arith.mulf %b, %two : f32
      %t = arith.addf %s, %m : f32
      attn.yield %t : f32
    } {note = "kept"} : !query, !dense, tensor<32xf32> -> !output
  return %o : !output
}

// A gate has a number for each feature of the output, or for each head.
// CHECK-LABEL: @gates
func.func @gates(%q: !query, %a: !dense, %sinks: tensor<32xf32>, %g: !output, %h: tensor<?x32xbf16>, %s: !state) {
  // CHECK: attn.attend %arg0 over (%arg1 see all) sinks %arg2 gate %arg3 : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, tensor<32xf32>, tensor<?x32x64xbf16> -> tensor<?x32x64xbf16>
  %0 = attn.attend %q over (%a see all) sinks %sinks gate %g : !query, !dense, tensor<32xf32>, !output -> !output
  // CHECK: attn.attend %arg0 over (%arg1 see all) gate %arg4 : {{.*}}, tensor<?x32xbf16> ->
  %1 = attn.attend %q over (%a see all) gate %h : !query, !dense, tensor<?x32xbf16> -> !output
  // CHECK: attn.finish %arg5 gate %arg3 : !attn.state<heads = 32, value_dim = 64> gate tensor<?x32x64xbf16> -> tensor<?x32x64xbf16>
  %2 = attn.finish %s gate %g : !state gate !output -> !output
  return
}

// A scale of outputs makes them f8E4M3FN.
// CHECK-LABEL: @output_scales
func.func @output_scales(%q: !query, %a: !dense, %g: tensor<?x32xbf16>, %s: tensor<1xf32>, %t: !state) {
  // CHECK: attn.attend %arg0 over (%arg1 see all) output_scale %arg3 : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, tensor<1xf32> -> tensor<?x32x64xf8E4M3FN>
  %0 = attn.attend %q over (%a see all) output_scale %s : !query, !dense, tensor<1xf32> -> tensor<?x32x64xf8E4M3FN>
  // CHECK: attn.attend %arg0 over (%arg1 see all) gate %arg2 output_scale %arg3 : {{.*}}, tensor<?x32xbf16>, tensor<1xf32> ->
  %1 = attn.attend %q over (%a see all) gate %g output_scale %s : !query, !dense, tensor<?x32xbf16>, tensor<1xf32> -> tensor<?x32x64xf8E4M3FN>
  // CHECK: attn.finish %arg4 output_scale %arg3 : !attn.state<heads = 32, value_dim = 64> output_scale tensor<1xf32> -> tensor<?x32x64xf8E4M3FN>
  %2 = attn.finish %t output_scale %s : !state output_scale tensor<1xf32> -> tensor<?x32x64xf8E4M3FN>
  return
}

// Scales that are made of outputs are the last result.
// CHECK-LABEL: @made_scales
func.func @made_scales(%q: !query, %a: !dense, %t: !state, %row: i64) {
  // CHECK: %{{.*}}, %{{.*}} = attn.attend %arg0 over (%arg1 see all) : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}> -> tensor<?x32x64xf8E4M3FN> output_scales tensor<?x32xf32>
  %0:2 = attn.attend %q over (%a see all) : !query, !dense -> tensor<?x32x64xf8E4M3FN> output_scales tensor<?x32xf32>
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}} = attn.attend {{.*}} -> tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32> output_scales tensor<?x32xf32>
  %1:3 = attn.attend %q over (%a see all) : !query, !dense -> tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32> output_scales tensor<?x32xf32>
  // CHECK: attn.finish %arg2 : {{.*}} -> tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32> output_scales tensor<?x32xf32>
  %o, %lse, %s = attn.finish %t : !state -> tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32> output_scales tensor<?x32xf32>
  // CHECK: attn.write %{{.*}}, %{{.*}} to %arg3 output_scales : tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32>
  attn.write %o, %lse to %row output_scales : tensor<?x32x64xf8E4M3FN>, tensor<?x32xf32>
  return
}

// Names that are no keywords are strings.
// CHECK-LABEL: @head_classes
func.func @head_classes(%q: !query, %a: !dense, %b: !paged, %classes: tensor<8xi32>, %sinks: tensor<32xf32>) {
  // CHECK: attn.attend %{{.*}} over (%{{.*}} see causal) heads %{{.*}} {retrieval: see all, streaming: see sink(64) | recent(256)} :
  // CHECK-SAME: tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, tensor<8xi32> -> tensor<?x32x64xbf16>
  %0 = attn.attend %q over (%a see causal) heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
      : !query, !dense, tensor<8xi32> -> !output
  // CHECK: attn.attend %{{.*}} over (%{{.*}} see all), (%{{.*}} see causal) heads %{{.*}} {i32: see window(7), "two words": see all} scale 0.5 sinks %{{.*}} :
  // CHECK-SAME: tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, !attn.kv<paged<16>, {{.*}}>, tensor<8xi32>, tensor<32xf32> ->
  %1 = attn.attend %q over (%a see all), (%b see causal) heads %classes {"i32": see window(7), "two words": see all}
      scale 0.5 sinks %sinks : !query, !dense, !paged, tensor<8xi32>, tensor<32xf32> -> !output
  // CHECK: %[[I:.*]] = attn.init
  %i = attn.init %q : !query -> !state
  // CHECK: attn.update %[[I]], %{{.*}}, %{{.*}} see all heads %{{.*}} {one: see causal} scale 0.125
  // CHECK-SAME: {note = #attn.head_classes<{a: see all, b: see causal}>} : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}>, tensor<8xi32> -> !attn.state
  %u = attn.update %i, %q, %a see all heads %classes {one: see causal} scale 0.125
      {note = #attn.head_classes<{a: see all, b: see causal}>} : !query, !dense, tensor<8xi32> -> !state
  return
}

// CHECK-LABEL: @online
func.func @online(%q: !query, %a: !dense, %b: !paged, %sinks: tensor<32xf32>) -> (!output, tensor<?x32xf32>) {
  // CHECK: %[[I:.*]] = attn.init %{{.*}} : tensor<?x32x128xbf16> -> !attn.state<heads = 32, value_dim = 64>
  %i = attn.init %q : !query -> !state
  // CHECK: %[[J:.*]] = attn.init %{{.*}} sinks %{{.*}} : tensor<?x32x128xbf16>, tensor<32xf32> -> !attn.state<heads = 32, value_dim = 64>
  %j = attn.init %q sinks %sinks : !query, tensor<32xf32> -> !state
  // CHECK: %[[U:.*]] = attn.update %[[I]], %{{.*}}, %{{.*}} see all scale 0.125 score {
  // CHECK: } : tensor<?x32x128xbf16>, !attn.kv<dense, {{.*}}> -> !attn.state<heads = 32, value_dim = 64>
  %u = attn.update %i, %q, %a see all scale 0.125 score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      attn.yield %s : f32
    } : !query, !dense -> !state
  // CHECK: %[[V:.*]] = attn.update %[[J]], %{{.*}}, %{{.*}} see causal and sink(4) scale 0.125 :
  %v = attn.update %j, %q, %b see causal and sink(4) scale 0.125 : !query, !paged -> !state
  // CHECK: %[[M:.*]] = attn.merge %[[U]], %[[V]] : !attn.state<heads = 32, value_dim = 64>
  %m = attn.merge %u, %v : !state
  // CHECK: attn.finish %[[M]] : !attn.state<heads = 32, value_dim = 64> -> tensor<?x32x64xbf16>, tensor<?x32xf32>
  %o, %lse = attn.finish %m : !state -> !output, tensor<?x32xf32>
  return %o, %lse : !output, tensor<?x32xf32>
}

// The LSE may leave the number of heads to the query.
// CHECK-LABEL: func.func @dynamic_lse
func.func @dynamic_lse(%q: !query, %a: !dense) -> tensor<?x?xf32> {
  // CHECK: attn.attend {{.*}} -> tensor<?x32x64xbf16>, tensor<?x?xf32>
  %o, %lse = attn.attend %q over (%a see all) : !query, !dense -> !output, tensor<?x?xf32>
  return %lse : tensor<?x?xf32>
}

// A store of one class has `?` as its number of heads, which is data.
!part = !attn.kv<paged<16>, heads = ?, dim = 128, value_dim = 64, key = bf16, value = bf16>
// CHECK-LABEL: func.func @class_regions
func.func @class_regions(%q: !query, %a: !dense, %b: !part, %c: !part, %classes: tensor<8xi32>) -> !output {
  // CHECK: over (%{{.*}} see all), (%{{.*}} see causal for retrieval), (%{{.*}} see causal and sink(4) for "a b") heads %{{.*}} {retrieval: see all, "a b": see recent(9)}
  // CHECK-SAME: !attn.kv<paged<16>, heads = ?, dim = 128, value_dim = 64, key = bf16, value = bf16>
  %o = attn.attend %q over (%a see all), (%b see causal for retrieval), (%c see causal & sink(4) for "a b")
      heads %classes {retrieval: see all, "a b": see recent(9)}
      : !query, !dense, !part, !part, tensor<8xi32> -> !output
  return %o : !output
}
