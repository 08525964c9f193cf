// Constant factors before the score and at the region's end merge. Other products stay as they are, since their
// rounding may decide an integer.
// RUN: attn-opt %s --target=sm_90a --schedule=mma --emit=tile | FileCheck %s
// RUN: attn-opt %s --target=sm_90a --schedule=mma --emit=ptx | FileCheck %s --check-prefix=PTX

!query = tensor<?x4x64xf16>
!cache = !attn.kv<paged<16>, heads = 4, dim = 64, key = f16, value = f16>

// CHECK: %[[F:.*]] = arith.sitofp
// CHECK: %[[A:.*]] = arith.mulf %[[F]], %{{[a-z0-9_]*}} : f32
// CHECK: %[[B:.*]] = arith.mulf %[[A]], %{{[a-z0-9_]*}} : f32
// CHECK: arith.fptosi %[[B]]
// CHECK: %[[E:.*]] = arith.mulf %{{.*}} fastmath<reassoc,contract> : f32
// CHECK: arith.mulf %[[E]], %{{.*}} fastmath<reassoc,contract> : f32

// PTX: mul.f32 %{{.*}}, 0f3DCCCCCD;
// PTX-NEXT: mul.f32 %{{.*}}, 0f41200000;
// PTX-NEXT: cvt.rzi.s32.f32
// PTX: div.rn.f32 %{{.*}}, 0f42240000;
func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query {
  %tenth = arith.constant 0.1 : f32
  %ten = arith.constant 10.0 : f32
  %c41 = arith.constant 41.0 : f32
  %three = arith.constant 3.0 : f32
  %o = attn.attend %q over (%kv see causal) score {
    ^bb0(%s: f32, %h: i32, %qp: i32, %kp: i32):
      %f = arith.sitofp %kp : i32 to f32
      %a = arith.mulf %f, %tenth : f32
      %b = arith.mulf %a, %ten : f32
      %i = arith.fptosi %b : f32 to i32
      %g = arith.sitofp %i : i32 to f32
      %d = arith.divf %g, %c41 : f32
      %e = arith.mulf %s, %three : f32
      %t = arith.mulf %e, %tenth : f32
      %y = arith.addf %t, %d : f32
      attn.yield %y : f32
  } : !query, !cache -> !query
  return %o : !query
}
