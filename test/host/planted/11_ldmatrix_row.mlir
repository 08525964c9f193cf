// Lane l gives the address of row l.
// wrong: lanes 8 and up skip rows, so they name unwritten rows.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32 //- wrong
    //+ wrong: %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %vec0 = llvm.mlir.undef : vector<4xi32>
    %vec1 = llvm.insertelement %tid, %vec0[%c0 : i32] : vector<4xi32>
    %vec2 = llvm.insertelement %lane, %vec1[%c1 : i32] : vector<4xi32>
    %vec3 = llvm.insertelement %tid, %vec2[%c2 : i32] : vector<4xi32>
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %vec = llvm.insertelement %lane, %vec3[%c3 : i32] : vector<4xi32>
    %ps = llvm.getelementptr %smem[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
    llvm.store %vec, %ps {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32 //- wrong
    //+ wrong: nvvm.barrier
    %c16 = llvm.mlir.constant(16 : i32) : i32
    //+ wrong: %c8 = llvm.mlir.constant(8 : i32) : i32
    %warpbase = llvm.sub %tid, %lane : i32
    %row = llvm.add %warpbase, %lane : i32
    %r = llvm.add %row, %c0 : i32 //- wrong
    //+ wrong: %ge = llvm.udiv %lane, %c8 : i32
    //+ wrong: %gap = llvm.mul %ge, %c64 : i32
    //+ wrong: %r = llvm.add %row, %gap : i32
    %ro = llvm.mul %r, %c16 : i32
    %rp = llvm.getelementptr %smem[%ro] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %m = nvvm.ldmatrix %rp {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32, i32, i32)>
    %m3 = llvm.extractvalue %m[3] : !llvm.struct<(i32, i32, i32, i32)>
    %v = llvm.add %m0, %m3 : i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
