// Access patterns of CountersTest.cpp.
gpu.module @kernels {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

  llvm.func @shared_stride_4(%stride: i32, %base: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %smem[%o1] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %z = llvm.mlir.zero : i32
    llvm.store %z, %p : i32, !llvm.ptr<3>
    llvm.return
  }

  llvm.func @global_stride_4(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %stride: i32, %base: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %in[%o1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v = llvm.load %p {alignment = 4 : i64} : !llvm.ptr<1> -> i32
    %q = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %q : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shared_stride_8(%stride: i32, %base: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %smem[%o1] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %z = llvm.mlir.zero : vector<2xi32>
    llvm.store %z, %p : vector<2xi32>, !llvm.ptr<3>
    llvm.return
  }

  llvm.func @global_stride_8(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %stride: i32, %base: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %in[%o1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v = llvm.load %p {alignment = 4 : i64} : !llvm.ptr<1> -> vector<2xi32>
    %q = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xi32>
    llvm.store %v, %q : vector<2xi32>, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @shared_stride_16(%stride: i32, %base: i32) attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %smem[%o1] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %z = llvm.mlir.zero : vector<4xi32>
    llvm.store %z, %p : vector<4xi32>, !llvm.ptr<3>
    llvm.return
  }

  llvm.func @global_stride_16(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %stride: i32, %base: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %o0 = llvm.mul %lane, %stride : i32
    %o1 = llvm.add %o0, %base : i32
    %p = llvm.getelementptr %in[%o1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v = llvm.load %p {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xi32>
    %q = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
    llvm.store %v, %q : vector<4xi32>, !llvm.ptr<1>
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

  llvm.func @rows_plain() attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c7 = llvm.mlir.constant(7 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %row = llvm.and %lane, %c7 : i32
    %chunk = llvm.lshr %lane, %c3 : i32
    %sc = llvm.or %chunk, %chunk : i32
    %r = llvm.mul %row, %c128 : i32
    %co = llvm.mul %sc, %c16 : i32
    %off = llvm.add %r, %co : i32
    %p = llvm.getelementptr %smem[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %z = llvm.mlir.zero : vector<4xi32>
    llvm.store %z, %p : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %p {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    llvm.return
  }

  llvm.func @rows_swizzled() attributes {nvvm.kernel} {
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c7 = llvm.mlir.constant(7 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %row = llvm.and %lane, %c7 : i32
    %chunk = llvm.lshr %lane, %c3 : i32
    %sc = llvm.xor %chunk, %row : i32
    %r = llvm.mul %row, %c128 : i32
    %co = llvm.mul %sc, %c16 : i32
    %off = llvm.add %r, %co : i32
    %p = llvm.getelementptr %smem[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %z = llvm.mlir.zero : vector<4xi32>
    llvm.store %z, %p : vector<4xi32>, !llvm.ptr<3>
    nvvm.bar.warp.sync %all : i32
    %m = nvvm.ldmatrix %p {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    llvm.return
  }

  llvm.func @uneven(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    llvm.br ^loop(%c0, %c0 : i32, i32)
  ^loop(%i: i32, %sum: i32):
    %r = llvm.mul %i, %c32 : i32
    %at = llvm.add %r, %lane : i32
    %p_v = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %v = llvm.load %p_v : !llvm.ptr<1> -> i32
    %s = llvm.add %sum, %v : i32
    %n = llvm.add %i, %c1 : i32
    %more = llvm.icmp "ule" %n, %lane : i32
    llvm.cond_br %more, ^loop(%n, %s : i32, i32), ^done
  ^done:
    %p_o = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %s, %p_o : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @far_ahead(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %trips: i32) attributes {nvvm.kernel} {
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    llvm.br ^loop(%c0, %c0 : i32, i32)
  ^loop(%i: i32, %sum: i32):
    %p_v = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %v = llvm.load %p_v : !llvm.ptr<1> -> i32
    %s = llvm.add %sum, %v : i32
    %n = llvm.add %i, %c1 : i32
    %more = llvm.icmp "slt" %n, %trips : i32
    llvm.cond_br %more, ^loop(%n, %s : i32, i32), ^done
  ^done:
    %p_o = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %s, %p_o : i32, !llvm.ptr<1>
    llvm.return
  }
}
