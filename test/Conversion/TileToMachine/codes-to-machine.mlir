// RUN: attn-opt %s --tile-to-machine --cse | FileCheck %s

!keys = !tile.shared<key 16, feature 32, f8E4M3FN, swizzled>
!keys4 = !tile.shared<key 16, feature 64, f4E2M1FN, swizzled>
gpu.module @kernels {
  // Along a line two neighbours are one load, at columns 2q and 2q + 8; 2 x 2 blocks of 8 keys and 16 features.
  // CHECK-LABEL: func.func @keys(
  // CHECK-COUNT-8: llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr<3> -> i16
  // CHECK-NOT: llvm.load
  // CHECK-COUNT-8: nvvm.convert.f8x2.to.f16x2 {{.*}} : vector<2xi8>(f8E4M3FN) -> vector<2xf16>
  // CHECK-NOT: nvvm.convert
  // CHECK-COUNT-4: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @keys(%q: !tile.fragment<[query 16, feature 32], f16, lhs>, %k: !keys, %s: !tile.fragment<[query 16, key 16], f32, acc>) {
    %codes = tile.load_rhs %k : !keys -> !tile.fragment<[key 16, feature 32], f8E4M3FN, rhs>
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 32], f8E4M3FN, rhs> -> !tile.fragment<[key 16, feature 32], f16, rhs>
    %0 = tile.mma %q, %wide, %s : !tile.fragment<[query 16, feature 32], f16, lhs>, !tile.fragment<[key 16, feature 32], f16, rhs>, !tile.fragment<[query 16, key 16], f32, acc> -> !tile.fragment<[query 16, key 16], f32, acc>
    return
  }
  // Across lines every quantized value is a load of its own; bf16 is made from the exact f16.
  // CHECK-LABEL: func.func @values(
  // CHECK-COUNT-16: llvm.load {{.*}} {alignment = 1 : i64} : !llvm.ptr<3> -> i8
  // CHECK-NOT: llvm.load
  // CHECK: nvvm.convert.f8x2.to.f16x2
  // CHECK: arith.extf {{.*}} : f16 to f32
  // CHECK: nvvm.convert.f32x2.to.bf16x2
  // CHECK-COUNT-4: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @values(%p: !tile.fragment<[query 16, key 16], bf16, lhs>, %v: !keys, %o: !tile.fragment<[query 16, feature 32], f32, acc>) {
    %codes = tile.load_rhs %v : !keys -> !tile.fragment<[feature 32, key 16], f8E4M3FN, rhs>
    %wide = tile.widen %codes : !tile.fragment<[feature 32, key 16], f8E4M3FN, rhs> -> !tile.fragment<[feature 32, key 16], bf16, rhs>
    %0 = tile.mma %p, %wide, %o : !tile.fragment<[query 16, key 16], bf16, lhs>, !tile.fragment<[feature 32, key 16], bf16, rhs>, !tile.fragment<[query 16, feature 32], f32, acc> -> !tile.fragment<[query 16, feature 32], f32, acc>
    return
  }
}

// Features in runs: a lane reads them with one load for each 16 bytes at most. One mask makes two floats of quantized
// values of 4 bits; their position in the mantissa makes them too large by 1024 or by 64.
!k4 = !tile.shared<key 16, feature 64, i4, swizzled>
!q = !tile.fragment<[query 16, feature 64], f16, lhs, runs 64 by 4>
!k16 = !tile.fragment<[key 16, feature 64], f16, rhs, runs 64 by 4>
!v16 = !tile.fragment<[feature 64, key 16], f16, rhs, runs 64>
!s = !tile.fragment<[query 16, key 16], f32, acc>
!o = !tile.fragment<[query 16, feature 64], f32, acc, runs 64>
gpu.module @runs {
  // CHECK-LABEL: func.func @keys4(
  // CHECK-COUNT-2: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
  // CHECK-NOT: llvm.load
  // CHECK-COUNT-16: llvm.fadd {{.*}} : vector<2xf16>
  // CHECK-NOT: llvm.fadd
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @keys4(%k: !k4, %q: !q, %s: !s) {
    %codes = tile.load_rhs %k : !k4 -> !tile.fragment<[key 16, feature 64], i4, rhs, runs 64 by 4>
    %wide = tile.widen %codes : !tile.fragment<[key 16, feature 64], i4, rhs, runs 64 by 4> -> !k16
    %0 = tile.mma %q, %wide, %s : !q, !k16, !s -> !s
    return
  }
  // Tiny values need no correction. Eight of the other operand's sixteen registers, those for the upper bits of
  // halves, are multiplied by a sixteenth.
  // CHECK-LABEL: func.func @tiny4(
  // CHECK-NOT: llvm.fadd
  // CHECK-COUNT-8: llvm.fmul {{.*}} : vector<2xf16>
  // CHECK-NOT: llvm.fmul
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @tiny4(%codes: !tile.fragment<[key 16, feature 64], i4, rhs, runs 64 by 4>, %q: !q, %s: !s) {
    %even = tile.balance %q for i4 : !q -> !q
    %wide = tile.widen tiny %codes : !tile.fragment<[key 16, feature 64], i4, rhs, runs 64 by 4> -> !k16
    %0 = tile.mma %even, %wide, %s : !q, !k16, !s -> !s
    return
  }
  // Floats of four bits: a bit of sign and three of magnitude move to their bits in f16, of every second value of a
  // word at once: three shifts and two choices for eight values. A mask then takes each pair out of a word, or out of
  // the word shifted up by 8 bits.
  // CHECK-LABEL: func.func @e2m1(
  // CHECK-COUNT-2: llvm.load {{.*}} -> vector<2xi32>
  // CHECK: %[[SIGNS:.*]] = arith.shli %[[WORD:.*]], %c4_i32
  // CHECK: %[[REST:.*]] = arith.shli %[[WORD]], %c1_i32
  // CHECK: %[[S:.*]] = arith.andi %[[SIGNS]], %c-2139062144_i32
  // CHECK: %[[R:.*]] = arith.andi %[[REST]], %c2139062143_i32
  // CHECK: %[[BOTH:.*]] = arith.ori %[[S]], %[[R]]
  // CHECK: %[[LOWER:.*]] = arith.shli %[[BOTH]], %c8_i32
  // CHECK: arith.andi %[[LOWER]], %c-1912566272_i32
  // CHECK: arith.andi %[[BOTH]], %c-1912566272_i32
  // CHECK-COUNT-6: arith.ori
  // CHECK-NOT: {{arith.ori|llvm.fmul}}
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @e2m1(%codes: !keys4, %q: !q, %s: !s) {
    %loaded = tile.load_rhs %codes : !keys4 -> !tile.fragment<[key 16, feature 64], f4E2M1FN, rhs, runs 64 by 4>
    %wide = tile.widen tiny %loaded : !tile.fragment<[key 16, feature 64], f4E2M1FN, rhs, runs 64 by 4> -> !k16
    %0 = tile.mma %q, %wide, %s : !q, !k16, !s -> !s
    return
  }
  // Blocks of keys: lane q of a quad has features 16 q to 16 q + 15 of its two tokens, and so a block of each: byte q
  // of the token's word. One instruction puts it into both halves of a pair.
  // CHECK-LABEL: func.func @blocks_of_keys(
  // CHECK: %[[Q:.*]] = arith.andi %{{.*}}, %c3_i32
  // CHECK: %[[BYTES:.*]] = arith.muli %[[Q]], %c4369_i32
  // CHECK: nvvm.prmt <default> %[[BYTES]], %[[WORD:arg[0-9]+]], %[[WORD]]
  // CHECK: nvvm.convert.f8x2.to.f16x2
  // CHECK: llvm.intr.fabs
  // CHECK-COUNT-1: nvvm.convert.f8x2.to.f16x2
  // CHECK-NOT: nvvm.convert.f8x2.to.f16x2
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @blocks_of_keys(%codes: !keys4, %w: i32, %q: !q, %s: !s) {
    %words = tile.splat %w : i32 -> !tile.fragment<[key 16], i32, row>
    %loaded = tile.load_rhs %codes : !keys4 -> !tile.fragment<[key 16, feature 64], f4E2M1FN, rhs, runs 64 by 4>
    %wide = tile.widen tiny %loaded blocks <4 of 16, f8E4M3FN> by %words : !tile.fragment<[key 16, feature 64], f4E2M1FN, rhs, runs 64 by 4> by !tile.fragment<[key 16], i32, row> -> !k16
    %0 = tile.mma %q, %wide, %s : !q, !k16, !s -> !s
    return
  }
  // Blocks of values: eight lanes have eight features of a token each, two lanes a block. Powers of two are divided
  // by the token's largest, in exponents of f16 of two tokens at once, which do not fall below zero: 29 for the
  // largest, since quantized values are 2^14 too small.
  // CHECK-LABEL: func.func @blocks_of_values(
  // CHECK: %[[OWN:.*]] = nvvm.prmt <default> %{{.*}}, %[[WORD:arg[0-9]+]], %[[WORD]]
  // CHECK: %[[BYTES:.*]] = arith.andi %[[OWN]], %c16711935_i32
  // CHECK: %[[ABOVE:.*]] = arith.ori %[[BYTES]], %c16777472_i32
  // CHECK: %[[LESS:.*]] = arith.subi %[[ABOVE]], %{{.*}}
  // CHECK: %[[HALVES:.*]] = llvm.bitcast %[[LESS]]
  // CHECK: %[[MOST:.*]] = llvm.intr.maxnum(%[[HALVES]], %{{.*}})
  // CHECK: %[[BITS:.*]] = llvm.bitcast %[[MOST]]
  // CHECK: %[[EXPONENTS:.*]] = arith.subi %[[BITS]], %c14876899_i32
  // CHECK: arith.shli %[[EXPONENTS]], %c10_i32
  // CHECK-NOT: nvvm.convert
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @blocks_of_values(%v: !keys4, %w: i32, %m: i32, %p: !tile.fragment<[query 16, key 16], f16, lhs>, %o: !o) {
    %words = tile.splat %w : i32 -> !tile.fragment<[key 16], i32, col>
    %most = tile.splat %m : i32 -> !tile.fragment<[key 16], i32, col>
    %codes = tile.load_rhs %v : !keys4 -> !tile.fragment<[feature 64, key 16], f4E2M1FN, rhs, runs 64>
    %wide = tile.widen tiny %codes blocks <2 of 32, f8E8M0FNU> by %words over %most : !tile.fragment<[feature 64, key 16], f4E2M1FN, rhs, runs 64> by !tile.fragment<[key 16], i32, col> over !tile.fragment<[key 16], i32, col> -> !v16
    %0 = tile.mma %p, %wide, %o : !tile.fragment<[query 16, key 16], f16, lhs>, !v16, !o -> !o
    return
  }
  // Values: four tokens of a lane, and for each pair of quantized values a factor and a term.
  // CHECK-LABEL: func.func @values4(
  // CHECK-COUNT-4: llvm.load {{.*}} {alignment = 4 : i64} : !llvm.ptr<3> -> vector<1xi32>
  // CHECK-NOT: llvm.load
  // CHECK-COUNT-16: llvm.intr.fma({{.*}}) : (vector<2xf16>, vector<2xf16>, vector<2xf16>) -> vector<2xf16>
  // CHECK-NOT: llvm.intr.fma
  // CHECK-COUNT-8: nvvm.mma.sync
  func.func @values4(%v: !k4, %x: f16, %p: !tile.fragment<[query 16, key 16], f16, lhs>, %o: !o) {
    %x16 = tile.splat %x : f16 -> !tile.fragment<[key 16], f16, col>
    %codes = tile.load_rhs %v : !k4 -> !tile.fragment<[feature 64, key 16], i4, rhs, runs 64>
    %wide = tile.widen %codes times %x16 plus %x16 : !tile.fragment<[feature 64, key 16], i4, rhs, runs 64> times !tile.fragment<[key 16], f16, col> plus !tile.fragment<[key 16], f16, col> -> !v16
    %0 = tile.mma %p, %wide, %o : !tile.fragment<[query 16, key 16], f16, lhs>, !v16, !o -> !o
    return
  }
}
