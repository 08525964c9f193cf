// A ring of two stages: warp 0 copies, warp 1 reads, mbarriers pass the stages back and forth.
// wrong1: the reader's parity does not flip on the wrap. wrong2: the producer uses the ring as if it had one more
// stage.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c72 = llvm.mlir.constant(72 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c512 = llvm.mlir.constant(512 : i32) : i32
    %c1536 = llvm.mlir.constant(1536 : i32) : i32
    %c2048 = llvm.mlir.constant(2048 : i32) : i32
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
    nvvm.mbarrier.init %p8, %c32 : !llvm.ptr<3>, i32
    %p9 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p9, %c32 : !llvm.ptr<3>, i32
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
    nvvm.cp.async.mbarrier.arrive %p21 {noinc = true} : !llvm.ptr<3>
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
    nvvm.cp.async.mbarrier.arrive %p29 {noinc = true} : !llvm.ptr<3>
    %p30 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p30, %c0, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong2
    //+ wrong2: nvvm.mbarrier.try_wait.parity %p30, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v31 = llvm.add %v5, %c0 : i32
    %v32 = llvm.mul %v31, %c16 : i32
    %v33 = llvm.add %v32, %c1024 : i32
    %p34 = llvm.getelementptr %in[%v33] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v35 = llvm.add %v32, %c1024 : i32
    %p36 = llvm.getelementptr %smem3[%v35] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p36, %p34, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p37 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p37 {noinc = true} : !llvm.ptr<3>
    %p38 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p38, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v39 = llvm.add %v5, %c0 : i32
    %v40 = llvm.mul %v39, %c16 : i32
    %v41 = llvm.add %v40, %c1536 : i32
    %p42 = llvm.getelementptr %in[%v41] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v43 = llvm.add %v40, %c1536 : i32
    %p44 = llvm.getelementptr %smem3[%v43] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p44, %p42, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p45 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p45 {noinc = true} : !llvm.ptr<3>
    %p46 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p46, %c1, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong2
    //+ wrong2: nvvm.mbarrier.try_wait.parity %p46, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v47 = llvm.add %v5, %c0 : i32
    %v48 = llvm.mul %v47, %c16 : i32
    %v49 = llvm.add %v48, %c2048 : i32
    %p50 = llvm.getelementptr %in[%v49] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v51 = llvm.add %v48, %c1024 : i32
    %p52 = llvm.getelementptr %smem3[%v51] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p52, %p50, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p53 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p53 {noinc = true} : !llvm.ptr<3>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    llvm.br ^join12
  ^else12:
    %v54 = llvm.icmp "eq" %v4, %c1 : i32
    llvm.cond_br %v54, ^then54, ^join54
  ^then54:
    %p56 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p56, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v57 = llvm.xor %v5, %c17 : i32
    %v58 = llvm.mul %v57, %c16 : i32
    %v59 = llvm.add %v58, %c1024 : i32
    %p60 = llvm.getelementptr %smem3[%v59] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v61 = llvm.load %p60 : !llvm.ptr<3> -> i32
    %v62 = llvm.mul %c0, %c3 : i32
    %v63 = llvm.xor %v62, %v61 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v64 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v64, ^then64, ^join64
  ^then64:
    %p66 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v67 = nvvm.mbarrier.arrive %p66 : !llvm.ptr<3> -> i64
    llvm.br ^join64
  ^join64:
    %p68 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p68, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v69 = llvm.xor %v5, %c17 : i32
    %v70 = llvm.mul %v69, %c16 : i32
    %v71 = llvm.add %v70, %c1536 : i32
    %p72 = llvm.getelementptr %smem3[%v71] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v73 = llvm.load %p72 : !llvm.ptr<3> -> i32
    %v74 = llvm.mul %v63, %c3 : i32
    %v75 = llvm.xor %v74, %v73 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v76 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v76, ^then76, ^join76
  ^then76:
    %p78 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v79 = nvvm.mbarrier.arrive %p78 : !llvm.ptr<3> -> i64
    llvm.br ^join76
  ^join76:
    %p80 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p80, %c1, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong1
    //+ wrong1: nvvm.mbarrier.try_wait.parity %p80, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v81 = llvm.xor %v5, %c17 : i32
    %v82 = llvm.mul %v81, %c16 : i32
    %v83 = llvm.add %v82, %c1024 : i32
    %p84 = llvm.getelementptr %smem3[%v83] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v85 = llvm.load %p84 : !llvm.ptr<3> -> i32
    %v86 = llvm.mul %v75, %c3 : i32
    %v87 = llvm.xor %v86, %v85 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v88 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v88, ^then88, ^join88
  ^then88:
    %p90 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v91 = nvvm.mbarrier.arrive %p90 : !llvm.ptr<3> -> i64
    llvm.br ^join88
  ^join88:
    %p92 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p92, %c1, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong1
    //+ wrong1: nvvm.mbarrier.try_wait.parity %p92, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v93 = llvm.xor %v5, %c17 : i32
    %v94 = llvm.mul %v93, %c16 : i32
    %v95 = llvm.add %v94, %c1536 : i32
    %p96 = llvm.getelementptr %smem3[%v95] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v97 = llvm.load %p96 : !llvm.ptr<3> -> i32
    %v98 = llvm.mul %v87, %c3 : i32
    %v99 = llvm.xor %v98, %v97 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v100 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v100, ^then100, ^join100
  ^then100:
    %p102 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v103 = nvvm.mbarrier.arrive %p102 : !llvm.ptr<3> -> i64
    llvm.br ^join100
  ^join100:
    %p104 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p104, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v105 = llvm.xor %v5, %c17 : i32
    %v106 = llvm.mul %v105, %c16 : i32
    %v107 = llvm.add %v106, %c1024 : i32
    %p108 = llvm.getelementptr %smem3[%v107] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v109 = llvm.load %p108 : !llvm.ptr<3> -> i32
    %v110 = llvm.mul %v99, %c3 : i32
    %v111 = llvm.xor %v110, %v109 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v112 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v112, ^then112, ^join112
  ^then112:
    %p114 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v115 = nvvm.mbarrier.arrive %p114 : !llvm.ptr<3> -> i64
    llvm.br ^join112
  ^join112:
    %v116 = llvm.mul %block2, %c64 : i32
    %v117 = llvm.add %v116, %tid1 : i32
    %p118 = llvm.getelementptr %out[%v117] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v111, %p118 : i32, !llvm.ptr<1>
    llvm.br ^join54
  ^join54:
    llvm.br ^join12
  ^join12:
    %v119 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v119, ^then119, ^join119
  ^then119:
    %v121 = llvm.mul %block2, %c64 : i32
    %v122 = llvm.add %v121, %tid1 : i32
    %p123 = llvm.getelementptr %out[%v122] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p123 : i32, !llvm.ptr<1>
    llvm.br ^join119
  ^join119:
    llvm.return
  }
}
