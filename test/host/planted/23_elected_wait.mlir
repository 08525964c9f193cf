// One lane writes and arrives; one lane of another warp waits, then its warp converges and reads.
// wrong: the other lanes read without converging with the waiting lane.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c9 = llvm.mlir.constant(9 : i32) : i32
    %c77 = llvm.mlir.constant(77 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32 //- wrong
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
    %v11 = llvm.icmp "eq" %v5, %c9 : i32
    llvm.cond_br %v11, ^then11, ^join11
  ^then11:
    %p13 = llvm.getelementptr %smem3[%c128] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %c77, %p13 : i32, !llvm.ptr<3>
    %p14 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v15 = nvvm.mbarrier.arrive %p14 : !llvm.ptr<3> -> i64
    llvm.br ^join11
  ^join11:
    %v16 = llvm.mul %block2, %c64 : i32
    %v17 = llvm.add %v16, %tid1 : i32
    %p18 = llvm.getelementptr %out[%v17] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p18 : i32, !llvm.ptr<1>
    llvm.br ^join9
  ^else9:
    %v19 = llvm.icmp "eq" %v5, %c4 : i32
    llvm.cond_br %v19, ^then19, ^join19
  ^then19:
    %p21 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p21, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    llvm.br ^join19
  ^join19:
    nvvm.bar.warp.sync %cm1 : i32 //- wrong
    %p22 = llvm.getelementptr %smem3[%c128] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v23 = llvm.load %p22 : !llvm.ptr<3> -> i32
    %v24 = llvm.mul %block2, %c64 : i32
    %v25 = llvm.add %v24, %tid1 : i32
    %p26 = llvm.getelementptr %out[%v25] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v23, %p26 : i32, !llvm.ptr<1>
    llvm.br ^join9
  ^join9:
    llvm.return
  }
}
