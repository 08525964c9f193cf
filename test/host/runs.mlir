// Two products in a chain. The second takes the first as operand (rounded, so the
// compiler half has to end its run of matrix operations) and as accumulator. Between them
// are operations of both kinds: some use results of the run, some must come before it.
// With T the 16x16 tile: S = T T[:, 0:8], O = S + [P | P] T[:, 8:16] where P = bf16(S / 2).
gpu.module @runs {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

  llvm.func @chain(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %sums: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c15 = llvm.mlir.constant(15 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %zero = llvm.mlir.constant(0.0 : f32) : f32
    %half = llvm.mlir.constant(0.5 : f32) : f32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %row = llvm.and %lane, %c15 : i32
    %chunk = llvm.lshr %lane, %c4 : i32
    %rowOffset = llvm.mul %row, %c32 : i32
    %chunkOffset = llvm.mul %chunk, %c16 : i32
    %aOffset = llvm.add %rowOffset, %chunkOffset : i32
    %pa = llvm.getelementptr %smem[%aOffset] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %a = nvvm.ldmatrix %pa {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    %a0 = llvm.extractvalue %a[0] : !llvm.struct<(i32, i32, i32, i32)>
    %a1 = llvm.extractvalue %a[1] : !llvm.struct<(i32, i32, i32, i32)>
    %a2 = llvm.extractvalue %a[2] : !llvm.struct<(i32, i32, i32, i32)>
    %a3 = llvm.extractvalue %a[3] : !llvm.struct<(i32, i32, i32, i32)>
    %pb = llvm.getelementptr %smem[%rowOffset] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %b = nvvm.ldmatrix %pb {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    %b0 = llvm.extractvalue %b[0] : !llvm.struct<(i32, i32)>
    %b1 = llvm.extractvalue %b[1] : !llvm.struct<(i32, i32)>
    %s = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%zero, %zero, %zero, %zero] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %s0 = llvm.extractvalue %s[0] : !llvm.struct<(f32, f32, f32, f32)>
    %s1 = llvm.extractvalue %s[1] : !llvm.struct<(f32, f32, f32, f32)>
    %s2 = llvm.extractvalue %s[2] : !llvm.struct<(f32, f32, f32, f32)>
    %s3 = llvm.extractvalue %s[3] : !llvm.struct<(f32, f32, f32, f32)>
    %h0 = llvm.fmul %s0, %half : f32
    %h1 = llvm.fmul %s1, %half : f32
    %h2 = llvm.fmul %s2, %half : f32
    %h3 = llvm.fmul %s3, %half : f32
    %bOffset = llvm.add %rowOffset, %c16 : i32
    %pc = llvm.getelementptr %smem[%bOffset] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %c = nvvm.ldmatrix %pc {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    %c0 = llvm.extractvalue %c[0] : !llvm.struct<(i32, i32)>
    %c1 = llvm.extractvalue %c[1] : !llvm.struct<(i32, i32)>
    %w0 = nvvm.convert.f32x2.to.bf16x2 %h1, %h0 {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xbf16>
    %w1 = nvvm.convert.f32x2.to.bf16x2 %h3, %h2 {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xbf16>
    %p0 = llvm.bitcast %w0 : vector<2xbf16> to i32
    %p1 = llvm.bitcast %w1 : vector<2xbf16> to i32
    %o = nvvm.mma.sync A[%p0, %p1, %p0, %p1] B[%c0, %c1] C[%s0, %s1, %s2, %s3] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %to = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, !llvm.struct<(f32, f32, f32, f32)>
    llvm.store %o, %to {alignment = 4 : i64} : !llvm.struct<(f32, f32, f32, f32)>, !llvm.ptr<1>
    %sum0 = llvm.fadd %s0, %s1 : f32
    %sum1 = llvm.fadd %s2, %s3 : f32
    %sum = llvm.fadd %sum0, %sum1 : f32
    %pt = llvm.getelementptr %sums[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %sum, %pt : f32, !llvm.ptr<1>
    llvm.return
  }
}
