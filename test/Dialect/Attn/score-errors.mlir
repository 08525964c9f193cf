// RUN: attn-opt %s -split-input-file -verify-diagnostics

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @function(%q: !query, %kv: !kv) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{'math.sin' op is not allowed in a score region; expected scalar arith, attn.read, or math.tanh, exp, exp2, log, log2, absf, sqrt or fma}}
      %t = math.sin %s : f32
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @truth(%q: !query, %kv: !kv) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %c = arith.cmpi slt, %q_pos, %k_pos : i32
      // expected-error @below {{expected i32 operands in a score region, got 'i1'}}
      %t = arith.addi %c, %c : i1
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @nested(%q: !query, %kv: !kv) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %c = arith.cmpi slt, %q_pos, %k_pos : i32
      // expected-error @below {{'scf.if' op is not allowed in a score region}}
      %t = scf.if %c -> f32 {
        scf.yield %s : f32
      } else {
        scf.yield %s : f32
      }
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @wide(%q: !query, %kv: !kv) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected f32, i32 or i1 in a score region, got 'i64'}}
      %t = arith.extsi %head : i32 to i64
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @outside(%q: !query, %kv: !kv, %x: f32) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected a value from outside the score region to be a constant; tensors are read with attn.read}}
      %t = arith.mulf %s, %x : f32
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @divisor(%q: !query, %kv: !kv) {
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected the right operand to be a constant in a score region}}
      %t = arith.divsi %q_pos, %k_pos : i32
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @zero(%q: !query, %kv: !kv) {
  %zero = arith.constant 0 : i32
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected a positive constant as divisor in a score region, got 0}}
      %t = arith.remsi %q_pos, %zero : i32
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @shift(%q: !query, %kv: !kv) {
  %c32 = arith.constant 32 : i32
  // expected-note @below {{in the score region of this operation}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected a shift from 0 to 31 in a score region, got 32}}
      %t = arith.shrsi %q_pos, %c32 : i32
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @arguments(%q: !query, %kv: !kv) {
  // expected-error @below {{expected the score region to take (f32, i32, i32, i32): the score, the query head and the positions of query and key; got ('f32', 'i32')}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32):
      attn.yield %s : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @unfinished(%q: !query, %kv: !kv) {
  // expected-error @below {{expected the score region to end with attn.yield}}
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      llvm.unreachable
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @read_type(%q: !query, %kv: !kv, %bias: tensor<4xf16>) {
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected a tensor of f32, got 'tensor<4xf16>'}}
      %t = attn.read %bias[%head] : tensor<4xf16>
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @read_empty(%q: !query, %kv: !kv, %bias: tensor<0xf32>) {
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected a tensor of one or more dimensions, none of them 0, got 'tensor<0xf32>'}}
      %t = attn.read %bias[%head] : tensor<0xf32>
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @read_indices(%q: !query, %kv: !kv, %bias: tensor<4x4xf32>) {
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected one index per dimension, 2, got 1}}
      %t = attn.read %bias[%head] : tensor<4x4xf32>
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

!query = tensor<?x4x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @read_value(%q: !query, %kv: !kv) {
  %bias = arith.constant dense<1.0> : tensor<4xf32>
  %o = attn.attend %q over (%kv see all) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      // expected-error @below {{expected the tensor to be an argument of the function}}
      %t = attn.read %bias[%head] : tensor<4xf32>
      attn.yield %t : f32
    } : !query, !kv -> !query
  return
}

// -----

func.func @read_elsewhere(%bias: tensor<4xf32>, %i: i32) {
  // expected-error @below {{expected to be in a score region}}
  %t = attn.read %bias[%i] : tensor<4xf32>
  return
}
