// Without .noinc the arrival raises the pending count itself: one thread's own arrival completes the phase.
// wrong: .noinc, with the same count.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c72 = llvm.mlir.constant(72 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %c512 = llvm.mlir.constant(512 : i32) : i32
    %c1536 = llvm.mlir.constant(1536 : i32) : i32
    %c17 = llvm.mlir.constant(17 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
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
    %p9 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p9, %c1 : !llvm.ptr<3>, i32
    %p10 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p10, %c1 : !llvm.ptr<3>, i32
    %p11 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p11, %c1 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^join6
  ^join6:
    nvvm.barrier
    %v12 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v12, ^then12, ^else12
  ^then12:
    %p14 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p14, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v15 = llvm.add %v5, %c0 : i32
    %v16 = llvm.mul %v15, %c16 : i32
    %v17 = llvm.add %v16, %c0 : i32
    %p18 = llvm.getelementptr %in[%v17] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v19 = llvm.add %v16, %c1024 : i32
    %p20 = llvm.getelementptr %smem3[%v19] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p20, %p18, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p21 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p21 {noinc = false} : !llvm.ptr<3> //- wrong
    //+ wrong: nvvm.cp.async.mbarrier.arrive %p21 {noinc = true} : !llvm.ptr<3>
    nvvm.bar.warp.sync %cm1 : i32
    %v22 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v22, ^then22, ^join22
  ^then22:
    %p24 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v25 = nvvm.mbarrier.arrive %p24 : !llvm.ptr<3> -> i64
    llvm.br ^join22
  ^join22:
    %p26 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p26, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v27 = llvm.add %v5, %c0 : i32
    %v28 = llvm.mul %v27, %c16 : i32
    %v29 = llvm.add %v28, %c512 : i32
    %p30 = llvm.getelementptr %in[%v29] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v31 = llvm.add %v28, %c1536 : i32
    %p32 = llvm.getelementptr %smem3[%v31] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p32, %p30, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p33 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p33 {noinc = false} : !llvm.ptr<3> //- wrong
    //+ wrong: nvvm.cp.async.mbarrier.arrive %p33 {noinc = true} : !llvm.ptr<3>
    nvvm.bar.warp.sync %cm1 : i32
    %v34 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v34, ^then34, ^join34
  ^then34:
    %p36 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v37 = nvvm.mbarrier.arrive %p36 : !llvm.ptr<3> -> i64
    llvm.br ^join34
  ^join34:
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    llvm.br ^join12
  ^else12:
    %v38 = llvm.icmp "eq" %v4, %c1 : i32
    llvm.cond_br %v38, ^then38, ^join38
  ^then38:
    %p40 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p40, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v41 = llvm.xor %v5, %c17 : i32
    %v42 = llvm.mul %v41, %c16 : i32
    %v43 = llvm.add %v42, %c1024 : i32
    %p44 = llvm.getelementptr %smem3[%v43] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v45 = llvm.load %p44 : !llvm.ptr<3> -> i32
    %v46 = llvm.mul %c0, %c3 : i32
    %v47 = llvm.xor %v46, %v45 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v48 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v48, ^then48, ^join48
  ^then48:
    %p50 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v51 = nvvm.mbarrier.arrive %p50 : !llvm.ptr<3> -> i64
    llvm.br ^join48
  ^join48:
    %p52 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p52, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v53 = llvm.xor %v5, %c17 : i32
    %v54 = llvm.mul %v53, %c16 : i32
    %v55 = llvm.add %v54, %c1536 : i32
    %p56 = llvm.getelementptr %smem3[%v55] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v57 = llvm.load %p56 : !llvm.ptr<3> -> i32
    %v58 = llvm.mul %v47, %c3 : i32
    %v59 = llvm.xor %v58, %v57 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v60 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v60, ^then60, ^join60
  ^then60:
    %p62 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v63 = nvvm.mbarrier.arrive %p62 : !llvm.ptr<3> -> i64
    llvm.br ^join60
  ^join60:
    %v64 = llvm.mul %block2, %c64 : i32
    %v65 = llvm.add %v64, %tid1 : i32
    %p66 = llvm.getelementptr %out[%v65] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v59, %p66 : i32, !llvm.ptr<1>
    llvm.br ^join38
  ^join38:
    llvm.br ^join12
  ^join12:
    %v67 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v67, ^then67, ^join67
  ^then67:
    %v69 = llvm.mul %block2, %c64 : i32
    %v70 = llvm.add %v69, %tid1 : i32
    %p71 = llvm.getelementptr %out[%v70] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p71 : i32, !llvm.ptr<1>
    llvm.br ^join67
  ^join67:
    llvm.return
  }
}
