// RUN: attn-opt %s --attn-check-signature
// RUN: attn-opt %s --attn-check-signature --attn-normalize --attn-split-regions --canonicalize --attn-check-signature
// RUN: attn-opt %examples/01_paged_decode/decode.mlir --attn-check-signature
// RUN: attn-opt %examples/02_prefill/prefill.mlir --attn-check-signature
// RUN: attn-opt %examples/03_softcap/softcap.mlir --attn-check-signature
// RUN: attn-opt %examples/04_composition/composition.mlir --attn-check-signature
// RUN: attn-opt %examples/05_shared_prefix/shared_prefix.mlir --attn-check-signature
// RUN: attn-opt %examples/06_head_classes/head_classes.mlir --attn-check-signature

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>

// A function without attention needs no names.
func.func private @declared(tensor<?xf32>)
func.func @other(%x: tensor<?xf32>) {
  return
}

// Dims of a query and of a KV operand have defaults.
func.func @named(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
                 %bias: tensor<4x?xf32> {attn.name = "bias", attn.dims = ["span"]}) -> !query {
  %o, %lse = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %t = attn.read %bias[%head, %k_pos] : tensor<4x?xf32>
      attn.yield %t : f32
    } : !query, !kv -> !query, tensor<?x4xf32>
  return %o : !query
}

// If the classes vanish, the tensor that assigned heads to them stays an argument.
func.func @classes(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
                   %classes: tensor<4xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%kv see all) heads %classes {x: see causal, y: see causal}
      : !query, !kv, tensor<4xi32> -> !query
  return %o : !query
}
