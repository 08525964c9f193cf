// Kernels of NumericsTest.cpp and CountersTest.cpp, one operation each.
gpu.module @kernels {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

  llvm.func @mma_f16(%a: !llvm.ptr<1>, %b: !llvm.ptr<1>, %c: !llvm.ptr<1>, %d: !llvm.ptr<1>, %e: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %l4 = llvm.mul %lane, %c4 : i32
    %l2 = llvm.mul %lane, %c2 : i32
    %c_0 = llvm.mlir.constant(0 : i32) : i32
    %ia0 = llvm.add %l4, %c_0 : i32
    %c_1 = llvm.mlir.constant(1 : i32) : i32
    %ia1 = llvm.add %l4, %c_1 : i32
    %c_2 = llvm.mlir.constant(2 : i32) : i32
    %ia2 = llvm.add %l4, %c_2 : i32
    %c_3 = llvm.mlir.constant(3 : i32) : i32
    %ia3 = llvm.add %l4, %c_3 : i32
    %ib0 = llvm.add %l2, %c_0 : i32
    %ib1 = llvm.add %l2, %c_1 : i32
    %p_a0 = llvm.getelementptr %a[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %a0 = llvm.load %p_a0 : !llvm.ptr<1> -> vector<2xf16>
    %p_x0 = llvm.getelementptr %c[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x0 = llvm.load %p_x0 : !llvm.ptr<1> -> f32
    %p_a1 = llvm.getelementptr %a[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %a1 = llvm.load %p_a1 : !llvm.ptr<1> -> vector<2xf16>
    %p_x1 = llvm.getelementptr %c[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x1 = llvm.load %p_x1 : !llvm.ptr<1> -> f32
    %p_a2 = llvm.getelementptr %a[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %a2 = llvm.load %p_a2 : !llvm.ptr<1> -> vector<2xf16>
    %p_x2 = llvm.getelementptr %c[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x2 = llvm.load %p_x2 : !llvm.ptr<1> -> f32
    %p_a3 = llvm.getelementptr %a[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %a3 = llvm.load %p_a3 : !llvm.ptr<1> -> vector<2xf16>
    %p_x3 = llvm.getelementptr %c[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x3 = llvm.load %p_x3 : !llvm.ptr<1> -> f32
    %p_b0 = llvm.getelementptr %b[%ib0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %b0 = llvm.load %p_b0 : !llvm.ptr<1> -> vector<2xf16>
    %p_b1 = llvm.getelementptr %b[%ib1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    %b1 = llvm.load %p_b1 : !llvm.ptr<1> -> vector<2xf16>
    %first = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%x0, %x1, %x2, %x3] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (vector<2xf16>, vector<2xf16>, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %d0 = llvm.extractvalue %first[0] : !llvm.struct<(f32, f32, f32, f32)>
    %d1 = llvm.extractvalue %first[1] : !llvm.struct<(f32, f32, f32, f32)>
    %d2 = llvm.extractvalue %first[2] : !llvm.struct<(f32, f32, f32, f32)>
    %d3 = llvm.extractvalue %first[3] : !llvm.struct<(f32, f32, f32, f32)>
    %second = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%d0, %d1, %d2, %d3] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (vector<2xf16>, vector<2xf16>, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %e0 = llvm.extractvalue %second[0] : !llvm.struct<(f32, f32, f32, f32)>
    %e1 = llvm.extractvalue %second[1] : !llvm.struct<(f32, f32, f32, f32)>
    %e2 = llvm.extractvalue %second[2] : !llvm.struct<(f32, f32, f32, f32)>
    %e3 = llvm.extractvalue %second[3] : !llvm.struct<(f32, f32, f32, f32)>
    %p_d0 = llvm.getelementptr %d[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d0, %p_d0 : f32, !llvm.ptr<1>
    %p_e0 = llvm.getelementptr %e[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e0, %p_e0 : f32, !llvm.ptr<1>
    %p_d1 = llvm.getelementptr %d[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d1, %p_d1 : f32, !llvm.ptr<1>
    %p_e1 = llvm.getelementptr %e[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e1, %p_e1 : f32, !llvm.ptr<1>
    %p_d2 = llvm.getelementptr %d[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d2, %p_d2 : f32, !llvm.ptr<1>
    %p_e2 = llvm.getelementptr %e[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e2, %p_e2 : f32, !llvm.ptr<1>
    %p_d3 = llvm.getelementptr %d[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d3, %p_d3 : f32, !llvm.ptr<1>
    %p_e3 = llvm.getelementptr %e[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e3, %p_e3 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @mma_bf16(%a: !llvm.ptr<1>, %b: !llvm.ptr<1>, %c: !llvm.ptr<1>, %d: !llvm.ptr<1>, %e: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %l4 = llvm.mul %lane, %c4 : i32
    %l2 = llvm.mul %lane, %c2 : i32
    %c_0 = llvm.mlir.constant(0 : i32) : i32
    %ia0 = llvm.add %l4, %c_0 : i32
    %c_1 = llvm.mlir.constant(1 : i32) : i32
    %ia1 = llvm.add %l4, %c_1 : i32
    %c_2 = llvm.mlir.constant(2 : i32) : i32
    %ia2 = llvm.add %l4, %c_2 : i32
    %c_3 = llvm.mlir.constant(3 : i32) : i32
    %ia3 = llvm.add %l4, %c_3 : i32
    %ib0 = llvm.add %l2, %c_0 : i32
    %ib1 = llvm.add %l2, %c_1 : i32
    %p_a0 = llvm.getelementptr %a[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %a0 = llvm.load %p_a0 : !llvm.ptr<1> -> i32
    %p_x0 = llvm.getelementptr %c[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x0 = llvm.load %p_x0 : !llvm.ptr<1> -> f32
    %p_a1 = llvm.getelementptr %a[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %a1 = llvm.load %p_a1 : !llvm.ptr<1> -> i32
    %p_x1 = llvm.getelementptr %c[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x1 = llvm.load %p_x1 : !llvm.ptr<1> -> f32
    %p_a2 = llvm.getelementptr %a[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %a2 = llvm.load %p_a2 : !llvm.ptr<1> -> i32
    %p_x2 = llvm.getelementptr %c[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x2 = llvm.load %p_x2 : !llvm.ptr<1> -> f32
    %p_a3 = llvm.getelementptr %a[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %a3 = llvm.load %p_a3 : !llvm.ptr<1> -> i32
    %p_x3 = llvm.getelementptr %c[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x3 = llvm.load %p_x3 : !llvm.ptr<1> -> f32
    %p_b0 = llvm.getelementptr %b[%ib0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %b0 = llvm.load %p_b0 : !llvm.ptr<1> -> i32
    %p_b1 = llvm.getelementptr %b[%ib1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %b1 = llvm.load %p_b1 : !llvm.ptr<1> -> i32
    %first = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%x0, %x1, %x2, %x3] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %d0 = llvm.extractvalue %first[0] : !llvm.struct<(f32, f32, f32, f32)>
    %d1 = llvm.extractvalue %first[1] : !llvm.struct<(f32, f32, f32, f32)>
    %d2 = llvm.extractvalue %first[2] : !llvm.struct<(f32, f32, f32, f32)>
    %d3 = llvm.extractvalue %first[3] : !llvm.struct<(f32, f32, f32, f32)>
    %second = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%d0, %d1, %d2, %d3] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %e0 = llvm.extractvalue %second[0] : !llvm.struct<(f32, f32, f32, f32)>
    %e1 = llvm.extractvalue %second[1] : !llvm.struct<(f32, f32, f32, f32)>
    %e2 = llvm.extractvalue %second[2] : !llvm.struct<(f32, f32, f32, f32)>
    %e3 = llvm.extractvalue %second[3] : !llvm.struct<(f32, f32, f32, f32)>
    %p_d0 = llvm.getelementptr %d[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d0, %p_d0 : f32, !llvm.ptr<1>
    %p_e0 = llvm.getelementptr %e[%ia0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e0, %p_e0 : f32, !llvm.ptr<1>
    %p_d1 = llvm.getelementptr %d[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d1, %p_d1 : f32, !llvm.ptr<1>
    %p_e1 = llvm.getelementptr %e[%ia1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e1, %p_e1 : f32, !llvm.ptr<1>
    %p_d2 = llvm.getelementptr %d[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d2, %p_d2 : f32, !llvm.ptr<1>
    %p_e2 = llvm.getelementptr %e[%ia2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e2, %p_e2 : f32, !llvm.ptr<1>
    %p_d3 = llvm.getelementptr %d[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %d3, %p_d3 : f32, !llvm.ptr<1>
    %p_e3 = llvm.getelementptr %e[%ia3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %e3, %p_e3 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x1(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 1 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> i32
    %cn = llvm.mlir.constant(1 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m, %p_o0 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x1_trans(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 1 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> i32
    %cn = llvm.mlir.constant(1 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m, %p_o0 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x2(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    %cn = llvm.mlir.constant(2 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32)>
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m0, %p_o0 : i32, !llvm.ptr<1>
    %m1 = llvm.extractvalue %m[1] : !llvm.struct<(i32, i32)>
    %ci1 = llvm.mlir.constant(1 : i32) : i32
    %i1 = llvm.add %at, %ci1 : i32
    %p_o1 = llvm.getelementptr %out[%i1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m1, %p_o1 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x2_trans(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    %cn = llvm.mlir.constant(2 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32)>
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m0, %p_o0 : i32, !llvm.ptr<1>
    %m1 = llvm.extractvalue %m[1] : !llvm.struct<(i32, i32)>
    %ci1 = llvm.mlir.constant(1 : i32) : i32
    %i1 = llvm.add %at, %ci1 : i32
    %p_o1 = llvm.getelementptr %out[%i1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m1, %p_o1 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x4(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    %cn = llvm.mlir.constant(4 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32, i32, i32)>
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m0, %p_o0 : i32, !llvm.ptr<1>
    %m1 = llvm.extractvalue %m[1] : !llvm.struct<(i32, i32, i32, i32)>
    %ci1 = llvm.mlir.constant(1 : i32) : i32
    %i1 = llvm.add %at, %ci1 : i32
    %p_o1 = llvm.getelementptr %out[%i1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m1, %p_o1 : i32, !llvm.ptr<1>
    %m2 = llvm.extractvalue %m[2] : !llvm.struct<(i32, i32, i32, i32)>
    %ci2 = llvm.mlir.constant(2 : i32) : i32
    %i2 = llvm.add %at, %ci2 : i32
    %p_o2 = llvm.getelementptr %out[%i2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m2, %p_o2 : i32, !llvm.ptr<1>
    %m3 = llvm.extractvalue %m[3] : !llvm.struct<(i32, i32, i32, i32)>
    %ci3 = llvm.mlir.constant(3 : i32) : i32
    %i3 = llvm.add %at, %ci3 : i32
    %p_o3 = llvm.getelementptr %out[%i3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m3, %p_o3 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @ldmatrix_x4_trans(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %row16 = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %row16, %dst : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %dst {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    %cn = llvm.mlir.constant(4 : i32) : i32
    %at = llvm.mul %lane, %cn : i32
    %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32, i32, i32)>
    %ci0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %at, %ci0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m0, %p_o0 : i32, !llvm.ptr<1>
    %m1 = llvm.extractvalue %m[1] : !llvm.struct<(i32, i32, i32, i32)>
    %ci1 = llvm.mlir.constant(1 : i32) : i32
    %i1 = llvm.add %at, %ci1 : i32
    %p_o1 = llvm.getelementptr %out[%i1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m1, %p_o1 : i32, !llvm.ptr<1>
    %m2 = llvm.extractvalue %m[2] : !llvm.struct<(i32, i32, i32, i32)>
    %ci2 = llvm.mlir.constant(2 : i32) : i32
    %i2 = llvm.add %at, %ci2 : i32
    %p_o2 = llvm.getelementptr %out[%i2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m2, %p_o2 : i32, !llvm.ptr<1>
    %m3 = llvm.extractvalue %m[3] : !llvm.struct<(i32, i32, i32, i32)>
    %ci3 = llvm.mlir.constant(3 : i32) : i32
    %i3 = llvm.add %at, %ci3 : i32
    %p_o3 = llvm.getelementptr %out[%i3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %m3, %p_o3 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @stmatrix_x4(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %v = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %v0 = llvm.extractelement %v[%c0 : i32] : vector<4xi32>
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %v1 = llvm.extractelement %v[%c1 : i32] : vector<4xi32>
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %v2 = llvm.extractelement %v[%c2 : i32] : vector<4xi32>
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %v3 = llvm.extractelement %v[%c3 : i32] : vector<4xi32>
    nvvm.stmatrix %dst, %v0, %v1, %v2, %v3 {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : !llvm.ptr<3>, i32, i32, i32, i32
    nvvm.bar.warp.sync %all : i32
    %w = llvm.load %dst : !llvm.ptr<3> -> vector<4xi32>
    %to = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    llvm.store %w, %to : vector<4xi32>, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @stmatrix_x4_trans(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %src = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    %v = llvm.load %src : !llvm.ptr<1> -> vector<4xi32>
    %dst = llvm.getelementptr %smem[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %v0 = llvm.extractelement %v[%c0 : i32] : vector<4xi32>
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %v1 = llvm.extractelement %v[%c1 : i32] : vector<4xi32>
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %v2 = llvm.extractelement %v[%c2 : i32] : vector<4xi32>
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %v3 = llvm.extractelement %v[%c3 : i32] : vector<4xi32>
    nvvm.stmatrix %dst, %v0, %v1, %v2, %v3 {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : !llvm.ptr<3>, i32, i32, i32, i32
    nvvm.bar.warp.sync %all : i32
    %w = llvm.load %dst : !llvm.ptr<3> -> vector<4xi32>
    %to = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    llvm.store %w, %to : vector<4xi32>, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shfl_bfly(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %valid: !llvm.ptr<1>, %b: i32, %c: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %p_x = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %x = llvm.load %p_x : !llvm.ptr<1> -> i32
    %r = nvvm.shfl.sync bfly %all, %x, %b, %c {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    %v = llvm.extractvalue %r[0] : !llvm.struct<(i32, i1)>
    %p = llvm.extractvalue %r[1] : !llvm.struct<(i32, i1)>
    %pz = llvm.zext %p : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %p_v : i32, !llvm.ptr<1>
    %p_z = llvm.getelementptr %valid[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %pz, %p_z : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shfl_up(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %valid: !llvm.ptr<1>, %b: i32, %c: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %p_x = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %x = llvm.load %p_x : !llvm.ptr<1> -> i32
    %r = nvvm.shfl.sync up %all, %x, %b, %c {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    %v = llvm.extractvalue %r[0] : !llvm.struct<(i32, i1)>
    %p = llvm.extractvalue %r[1] : !llvm.struct<(i32, i1)>
    %pz = llvm.zext %p : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %p_v : i32, !llvm.ptr<1>
    %p_z = llvm.getelementptr %valid[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %pz, %p_z : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shfl_down(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %valid: !llvm.ptr<1>, %b: i32, %c: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %p_x = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %x = llvm.load %p_x : !llvm.ptr<1> -> i32
    %r = nvvm.shfl.sync down %all, %x, %b, %c {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    %v = llvm.extractvalue %r[0] : !llvm.struct<(i32, i1)>
    %p = llvm.extractvalue %r[1] : !llvm.struct<(i32, i1)>
    %pz = llvm.zext %p : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %p_v : i32, !llvm.ptr<1>
    %p_z = llvm.getelementptr %valid[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %pz, %p_z : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shfl_idx(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %valid: !llvm.ptr<1>, %b: i32, %c: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %p_x = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %x = llvm.load %p_x : !llvm.ptr<1> -> i32
    %r = nvvm.shfl.sync idx %all, %x, %b, %c {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    %v = llvm.extractvalue %r[0] : !llvm.struct<(i32, i1)>
    %p = llvm.extractvalue %r[1] : !llvm.struct<(i32, i1)>
    %pz = llvm.zext %p : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %p_v : i32, !llvm.ptr<1>
    %p_z = llvm.getelementptr %valid[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %pz, %p_z : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @vote_any(%out: !llvm.ptr<1>, %bits: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = llvm.mlir.constant(-1 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %s = llvm.lshr %bits, %lane : i32
    %t = llvm.trunc %s : i32 to i1
    %r = nvvm.vote.sync any %full, %t -> i1
    %z = llvm.zext %r : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %z, %p_v : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @vote_all(%out: !llvm.ptr<1>, %bits: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = llvm.mlir.constant(-1 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %s = llvm.lshr %bits, %lane : i32
    %t = llvm.trunc %s : i32 to i1
    %r = nvvm.vote.sync all %full, %t -> i1
    %z = llvm.zext %r : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %z, %p_v : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @vote_ballot(%out: !llvm.ptr<1>, %bits: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = llvm.mlir.constant(-1 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %s = llvm.lshr %bits, %lane : i32
    %t = llvm.trunc %s : i32 to i1
    %r = nvvm.vote.sync ballot %full, %t -> i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %r, %p_v : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @vote_uni(%out: !llvm.ptr<1>, %bits: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = llvm.mlir.constant(-1 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %s = llvm.lshr %bits, %lane : i32
    %t = llvm.trunc %s : i32 to i1
    %r = nvvm.vote.sync uni %full, %t -> i1
    %z = llvm.zext %r : i1 to i32
    %p_v = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %z, %p_v : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @copy_4(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %bytes: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %csz = llvm.mlir.constant(4 : i32) : i32
    %off = llvm.mul %lane, %csz : i32
    %d = llvm.getelementptr %smem[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %g = llvm.getelementptr %in[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    nvvm.cp.async.shared.global %d, %g, 4, cache = ca, %bytes : !llvm.ptr<3>, !llvm.ptr<1>, i32
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    %v = llvm.load %d : !llvm.ptr<3> -> i32
    %t = llvm.getelementptr %out[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %v, %t : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @copy_8(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %bytes: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %csz = llvm.mlir.constant(8 : i32) : i32
    %off = llvm.mul %lane, %csz : i32
    %d = llvm.getelementptr %smem[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %g = llvm.getelementptr %in[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    nvvm.cp.async.shared.global %d, %g, 8, cache = ca, %bytes : !llvm.ptr<3>, !llvm.ptr<1>, i32
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    %v = llvm.load %d : !llvm.ptr<3> -> vector<2xi32>
    %t = llvm.getelementptr %out[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %v, %t : vector<2xi32>, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @copy_16(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %bytes: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %csz = llvm.mlir.constant(16 : i32) : i32
    %off = llvm.mul %lane, %csz : i32
    %d = llvm.getelementptr %smem[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %g = llvm.getelementptr %in[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    nvvm.cp.async.shared.global %d, %g, 16, cache = cg, %bytes : !llvm.ptr<3>, !llvm.ptr<1>, i32
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    %v = llvm.load %d : !llvm.ptr<3> -> vector<4xi32>
    %t = llvm.getelementptr %out[%off] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %v, %t : vector<4xi32>, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @approximations(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %p_x = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x = llvm.load %p_x : !llvm.ptr<1> -> f32
    %r0 = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%x) : (f32) -> f32
    %k0 = llvm.mlir.constant(0 : i32) : i32
    %i0 = llvm.add %lane, %k0 : i32
    %p_o0 = llvm.getelementptr %out[%i0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %r0, %p_o0 : f32, !llvm.ptr<1>
    %r1 = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"(%x) : (f32) -> f32
    %k1 = llvm.mlir.constant(32 : i32) : i32
    %i1 = llvm.add %lane, %k1 : i32
    %p_o1 = llvm.getelementptr %out[%i1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %r1, %p_o1 : f32, !llvm.ptr<1>
    %r2 = llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"(%x) : (f32) -> f32
    %k2 = llvm.mlir.constant(64 : i32) : i32
    %i2 = llvm.add %lane, %k2 : i32
    %p_o2 = llvm.getelementptr %out[%i2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %r2, %p_o2 : f32, !llvm.ptr<1>
    %r3 = llvm.call_intrinsic "llvm.nvvm.sqrt.approx.ftz.f"(%x) : (f32) -> f32
    %k3 = llvm.mlir.constant(96 : i32) : i32
    %i3 = llvm.add %lane, %k3 : i32
    %p_o3 = llvm.getelementptr %out[%i3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %r3, %p_o3 : f32, !llvm.ptr<1>
    %r4 = llvm.intr.tanh(%x) {fastmathFlags = #llvm.fastmath<afn>} : (f32) -> f32
    %k4 = llvm.mlir.constant(128 : i32) : i32
    %i4 = llvm.add %lane, %k4 : i32
    %p_o4 = llvm.getelementptr %out[%i4] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %r4, %p_o4 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @convert(%in: !llvm.ptr<1>, %h: !llvm.ptr<1>, %b: !llvm.ptr<1>, %hx: !llvm.ptr<1>, %bx: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %n = nvvm.read.ptx.sreg.ntid.x : i32
    %base = llvm.mul %block, %n : i32
    %i = llvm.add %base, %tid : i32
    %p_x = llvm.getelementptr %in[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x = llvm.load %p_x : !llvm.ptr<1> -> f32
    %zero = llvm.mlir.constant(0.0 : f32) : f32
    %h2 = nvvm.convert.f32x2.to.f16x2 %x, %zero {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xf16>
    %b2 = nvvm.convert.f32x2.to.bf16x2 %zero, %x {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xbf16>
    %hi = llvm.bitcast %h2 : vector<2xf16> to i32
    %bi = llvm.bitcast %b2 : vector<2xbf16> to i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %hs = llvm.lshr %hi, %c16 : i32
    %ht = llvm.fptrunc %x : f32 to f16
    %bt = llvm.fptrunc %x : f32 to bf16
    %hf = llvm.fpext %ht : f16 to f32
    %bf = llvm.fpext %bt : bf16 to f32
    %p_h = llvm.getelementptr %h[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %hs, %p_h : i32, !llvm.ptr<1>
    %p_b = llvm.getelementptr %b[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %bi, %p_b : i32, !llvm.ptr<1>
    %p_hx = llvm.getelementptr %hx[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %hf, %p_hx : f32, !llvm.ptr<1>
    %p_bx = llvm.getelementptr %bx[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %bf, %p_bx : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @registers(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %r0 = nvvm.read.ptx.sreg.tid.x : i32
    %r1 = nvvm.read.ptx.sreg.tid.y : i32
    %r2 = nvvm.read.ptx.sreg.tid.z : i32
    %r3 = nvvm.read.ptx.sreg.ctaid.x : i32
    %r4 = nvvm.read.ptx.sreg.ctaid.y : i32
    %r5 = nvvm.read.ptx.sreg.ctaid.z : i32
    %r6 = nvvm.read.ptx.sreg.ntid.x : i32
    %r7 = nvvm.read.ptx.sreg.ntid.y : i32
    %r8 = nvvm.read.ptx.sreg.ntid.z : i32
    %r9 = nvvm.read.ptx.sreg.nctaid.x : i32
    %r10 = nvvm.read.ptx.sreg.nctaid.y : i32
    %r11 = nvvm.read.ptx.sreg.nctaid.z : i32
    %b0 = llvm.mul %r5, %r10 : i32
    %b1 = llvm.add %b0, %r4 : i32
    %b2 = llvm.mul %b1, %r9 : i32
    %b3 = llvm.add %b2, %r3 : i32
    %t0 = llvm.mul %r2, %r7 : i32
    %t1 = llvm.add %t0, %r1 : i32
    %t2 = llvm.mul %t1, %r6 : i32
    %t3 = llvm.add %t2, %r0 : i32
    %s0 = llvm.mul %r6, %r7 : i32
    %s1 = llvm.mul %s0, %r8 : i32
    %g0 = llvm.mul %b3, %s1 : i32
    %g = llvm.add %g0, %t3 : i32
    %p_o = llvm.getelementptr %out[%g] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %t3, %p_o : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @movmatrix(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %p_i = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %x = llvm.load %p_i : !llvm.ptr<1> -> i32
    %y = tile.move_matrix %x
    %p_o = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %y, %p_o : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @permute(%low: !llvm.ptr<1>, %high: !llvm.ptr<1>, %which: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %p_l = llvm.getelementptr %low[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %l = llvm.load %p_l : !llvm.ptr<1> -> i32
    %p_h = llvm.getelementptr %high[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %h = llvm.load %p_h : !llvm.ptr<1> -> i32
    %p_w = llvm.getelementptr %which[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %w = llvm.load %p_w : !llvm.ptr<1> -> i32
    %y = nvvm.prmt <default> %w, %l, %h : i32
    %p_o = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %y, %p_o : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @add_everywhere(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %c1 = llvm.mlir.constant(1.0 : f32) : f32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %f = llvm.sitofp %block : i32 to f32
    %g = llvm.fadd %f, %c1 : f32
    %third = llvm.mlir.constant(0.333333 : f32) : f32
    %h = llvm.fmul %g, %third : f32
    %old = llvm.atomicrmw fadd %out, %h monotonic : !llvm.ptr<1>, f32
    llvm.return
  }
}
