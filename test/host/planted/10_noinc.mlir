// Copies arrive by themselves: with .noinc each thread's arrival is part of the count.
// wrong1: counted as if without .noinc. wrong2: .noinc forgotten, so that the arrivals cancel out and the count is never reached.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32 //- wrong1
    //+ wrong1: %c1 = llvm.mlir.constant(1 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32 //- wrong1
    %c72 = llvm.mlir.constant(72 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c512 = llvm.mlir.constant(512 : i32) : i32
    %c1536 = llvm.mlir.constant(1536 : i32) : i32
    %c17 = llvm.mlir.constant(17 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "eq" %tid1, %c0 : i32
    llvm.cond_br %v6, ^then6, ^join6
  ^then6:
    %p8 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p8, %c32 : !llvm.ptr<3>, i32 //- wrong1
    //+ wrong1: nvvm.mbarrier.init %p8, %c1 : !llvm.ptr<3>, i32
    %p9 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p9, %c32 : !llvm.ptr<3>, i32 //- wrong1
    //+ wrong1: nvvm.mbarrier.init %p9, %c1 : !llvm.ptr<3>, i32
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
    nvvm.cp.async.mbarrier.arrive %p21 {noinc = true} : !llvm.ptr<3> //- wrong2
    //+ wrong2: nvvm.cp.async.mbarrier.arrive %p21 {noinc = false} : !llvm.ptr<3>
    %p22 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p22, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v23 = llvm.add %v5, %c0 : i32
    %v24 = llvm.mul %v23, %c16 : i32
    %v25 = llvm.add %v24, %c512 : i32
    %p26 = llvm.getelementptr %in[%v25] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v27 = llvm.add %v24, %c1536 : i32
    %p28 = llvm.getelementptr %smem3[%v27] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p28, %p26, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p29 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p29 {noinc = true} : !llvm.ptr<3> //- wrong2
    //+ wrong2: nvvm.cp.async.mbarrier.arrive %p29 {noinc = false} : !llvm.ptr<3>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    llvm.br ^join12
  ^else12:
    %v30 = llvm.icmp "eq" %v4, %c1 : i32
    llvm.cond_br %v30, ^then30, ^join30
  ^then30:
    %p32 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p32, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v33 = llvm.xor %v5, %c17 : i32
    %v34 = llvm.mul %v33, %c16 : i32
    %v35 = llvm.add %v34, %c1024 : i32
    %p36 = llvm.getelementptr %smem3[%v35] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v37 = llvm.load %p36 : !llvm.ptr<3> -> i32
    %v38 = llvm.mul %c0, %c3 : i32
    %v39 = llvm.xor %v38, %v37 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v40 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v40, ^then40, ^join40
  ^then40:
    %p42 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v43 = nvvm.mbarrier.arrive %p42 : !llvm.ptr<3> -> i64
    llvm.br ^join40
  ^join40:
    %p44 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p44, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v45 = llvm.xor %v5, %c17 : i32
    %v46 = llvm.mul %v45, %c16 : i32
    %v47 = llvm.add %v46, %c1536 : i32
    %p48 = llvm.getelementptr %smem3[%v47] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v49 = llvm.load %p48 : !llvm.ptr<3> -> i32
    %v50 = llvm.mul %v39, %c3 : i32
    %v51 = llvm.xor %v50, %v49 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v52 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v52, ^then52, ^join52
  ^then52:
    %p54 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v55 = nvvm.mbarrier.arrive %p54 : !llvm.ptr<3> -> i64
    llvm.br ^join52
  ^join52:
    %v56 = llvm.mul %block2, %c64 : i32
    %v57 = llvm.add %v56, %tid1 : i32
    %p58 = llvm.getelementptr %out[%v57] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v51, %p58 : i32, !llvm.ptr<1>
    llvm.br ^join30
  ^join30:
    llvm.br ^join12
  ^join12:
    %v59 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v59, ^then59, ^join59
  ^then59:
    %v61 = llvm.mul %block2, %c64 : i32
    %v62 = llvm.add %v61, %tid1 : i32
    %p63 = llvm.getelementptr %out[%v62] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p63 : i32, !llvm.ptr<1>
    llvm.br ^join59
  ^join59:
    llvm.return
  }
}
