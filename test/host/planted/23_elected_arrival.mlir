// One lane arrives for its warp, whichever lane it is.
// wrong: the warp did not converge before, so that the lane's arrival covers only itself.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c29 = llvm.mlir.constant(29 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32 //- wrong
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "eq" %tid1, %c0 : i32
    llvm.cond_br %v6, ^then6, ^join6
  ^then6:
    %p8 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p8, %c1 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^join6
  ^join6:
    nvvm.barrier
    %v9 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v9, ^then9, ^else9
  ^then9:
    %v11 = llvm.mul %v5, %c4 : i32
    %v12 = llvm.add %v11, %c128 : i32
    %p13 = llvm.getelementptr %smem3[%v12] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v14 = llvm.xor %v5, %c29 : i32
    llvm.store %v14, %p13 : i32, !llvm.ptr<3>
    nvvm.bar.warp.sync %cm1 : i32 //- wrong
    %v15 = nvvm.elect.sync -> i1
    llvm.cond_br %v15, ^then15, ^join15
  ^then15:
    %p17 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v18 = nvvm.mbarrier.arrive %p17 : !llvm.ptr<3> -> i64
    llvm.br ^join15
  ^join15:
    %v19 = llvm.mul %block2, %c64 : i32
    %v20 = llvm.add %v19, %tid1 : i32
    %p21 = llvm.getelementptr %out[%v20] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p21 : i32, !llvm.ptr<1>
    llvm.br ^join9
  ^else9:
    %p22 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p22, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v23 = llvm.mul %v5, %c4 : i32
    %v24 = llvm.add %v23, %c128 : i32
    %p25 = llvm.getelementptr %smem3[%v24] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v26 = llvm.load %p25 : !llvm.ptr<3> -> i32
    %v27 = llvm.mul %block2, %c64 : i32
    %v28 = llvm.add %v27, %tid1 : i32
    %p29 = llvm.getelementptr %out[%v28] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v26, %p29 : i32, !llvm.ptr<1>
    llvm.br ^join9
  ^join9:
    llvm.return
  }
}
