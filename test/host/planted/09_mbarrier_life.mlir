// wrong1: only the first block initializes its mbarriers. wrong2: a live one is initialized again.
// wrong3: data overwrites one. wrong4, wrong5: one arrival too many or too few is waited for.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32 //- wrong5
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    //+ wrong4: %c2 = llvm.mlir.constant(2 : i32) : i32
    //+ wrong4: %c72 = llvm.mlir.constant(72 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c72 = llvm.mlir.constant(72 : i32) : i32 //- wrong4
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
    nvvm.mbarrier.init %p8, %c32 : !llvm.ptr<3>, i32 //- wrong5
    //+ wrong5: nvvm.mbarrier.init %p8, %c31 : !llvm.ptr<3>, i32
    %p9 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p9, %c32 : !llvm.ptr<3>, i32 //- wrong5
    //+ wrong5: nvvm.mbarrier.init %p9, %c31 : !llvm.ptr<3>, i32
    %p10 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p10, %c1 : !llvm.ptr<3>, i32 //- wrong4
    //+ wrong4: nvvm.mbarrier.init %p10, %c2 : !llvm.ptr<3>, i32
    %p11 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p11, %c1 : !llvm.ptr<3>, i32 //- wrong4
    //+ wrong4: nvvm.mbarrier.init %p11, %c2 : !llvm.ptr<3>, i32
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
    nvvm.mbarrier.try_wait.parity %p30, %c0, %c1000 : !llvm.ptr<3>, i32, i32
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
    nvvm.mbarrier.try_wait.parity %p46, %c1, %c1000 : !llvm.ptr<3>, i32, i32
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
    nvvm.mbarrier.try_wait.parity %p80, %c1, %c1000 : !llvm.ptr<3>, i32, i32
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
    nvvm.mbarrier.try_wait.parity %p92, %c1, %c1000 : !llvm.ptr<3>, i32, i32
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

  llvm.func @wrong1(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
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
    %v6 = llvm.or %tid1, %block2 : i32
    %v7 = llvm.icmp "eq" %v6, %c0 : i32
    llvm.cond_br %v7, ^then7, ^join7
  ^then7:
    %p9 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p9, %c32 : !llvm.ptr<3>, i32
    %p10 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p10, %c32 : !llvm.ptr<3>, i32
    %p11 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p11, %c1 : !llvm.ptr<3>, i32
    %p12 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p12, %c1 : !llvm.ptr<3>, i32
    llvm.br ^join7
  ^join7:
    nvvm.barrier
    %v13 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v13, ^then13, ^else13
  ^then13:
    %p15 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p15, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v16 = llvm.add %v5, %c0 : i32
    %v17 = llvm.mul %v16, %c16 : i32
    %v18 = llvm.add %v17, %c0 : i32
    %p19 = llvm.getelementptr %in[%v18] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v20 = llvm.add %v17, %c1024 : i32
    %p21 = llvm.getelementptr %smem3[%v20] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p21, %p19, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p22 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p22 {noinc = true} : !llvm.ptr<3>
    %p23 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p23, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v24 = llvm.add %v5, %c0 : i32
    %v25 = llvm.mul %v24, %c16 : i32
    %v26 = llvm.add %v25, %c512 : i32
    %p27 = llvm.getelementptr %in[%v26] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v28 = llvm.add %v25, %c1536 : i32
    %p29 = llvm.getelementptr %smem3[%v28] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p29, %p27, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p30 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p30 {noinc = true} : !llvm.ptr<3>
    %p31 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p31, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v32 = llvm.add %v5, %c0 : i32
    %v33 = llvm.mul %v32, %c16 : i32
    %v34 = llvm.add %v33, %c1024 : i32
    %p35 = llvm.getelementptr %in[%v34] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v36 = llvm.add %v33, %c1024 : i32
    %p37 = llvm.getelementptr %smem3[%v36] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p37, %p35, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p38 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p38 {noinc = true} : !llvm.ptr<3>
    %p39 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p39, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v40 = llvm.add %v5, %c0 : i32
    %v41 = llvm.mul %v40, %c16 : i32
    %v42 = llvm.add %v41, %c1536 : i32
    %p43 = llvm.getelementptr %in[%v42] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v44 = llvm.add %v41, %c1536 : i32
    %p45 = llvm.getelementptr %smem3[%v44] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p45, %p43, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p46 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p46 {noinc = true} : !llvm.ptr<3>
    %p47 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p47, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v48 = llvm.add %v5, %c0 : i32
    %v49 = llvm.mul %v48, %c16 : i32
    %v50 = llvm.add %v49, %c2048 : i32
    %p51 = llvm.getelementptr %in[%v50] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v52 = llvm.add %v49, %c1024 : i32
    %p53 = llvm.getelementptr %smem3[%v52] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p53, %p51, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p54 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p54 {noinc = true} : !llvm.ptr<3>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    llvm.br ^join13
  ^else13:
    %v55 = llvm.icmp "eq" %v4, %c1 : i32
    llvm.cond_br %v55, ^then55, ^join55
  ^then55:
    %p57 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p57, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v58 = llvm.xor %v5, %c17 : i32
    %v59 = llvm.mul %v58, %c16 : i32
    %v60 = llvm.add %v59, %c1024 : i32
    %p61 = llvm.getelementptr %smem3[%v60] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v62 = llvm.load %p61 : !llvm.ptr<3> -> i32
    %v63 = llvm.mul %c0, %c3 : i32
    %v64 = llvm.xor %v63, %v62 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v65 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v65, ^then65, ^join65
  ^then65:
    %p67 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v68 = nvvm.mbarrier.arrive %p67 : !llvm.ptr<3> -> i64
    llvm.br ^join65
  ^join65:
    %p69 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p69, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v70 = llvm.xor %v5, %c17 : i32
    %v71 = llvm.mul %v70, %c16 : i32
    %v72 = llvm.add %v71, %c1536 : i32
    %p73 = llvm.getelementptr %smem3[%v72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v74 = llvm.load %p73 : !llvm.ptr<3> -> i32
    %v75 = llvm.mul %v64, %c3 : i32
    %v76 = llvm.xor %v75, %v74 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v77 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v77, ^then77, ^join77
  ^then77:
    %p79 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v80 = nvvm.mbarrier.arrive %p79 : !llvm.ptr<3> -> i64
    llvm.br ^join77
  ^join77:
    %p81 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p81, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v82 = llvm.xor %v5, %c17 : i32
    %v83 = llvm.mul %v82, %c16 : i32
    %v84 = llvm.add %v83, %c1024 : i32
    %p85 = llvm.getelementptr %smem3[%v84] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v86 = llvm.load %p85 : !llvm.ptr<3> -> i32
    %v87 = llvm.mul %v76, %c3 : i32
    %v88 = llvm.xor %v87, %v86 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v89 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v89, ^then89, ^join89
  ^then89:
    %p91 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v92 = nvvm.mbarrier.arrive %p91 : !llvm.ptr<3> -> i64
    llvm.br ^join89
  ^join89:
    %p93 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p93, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v94 = llvm.xor %v5, %c17 : i32
    %v95 = llvm.mul %v94, %c16 : i32
    %v96 = llvm.add %v95, %c1536 : i32
    %p97 = llvm.getelementptr %smem3[%v96] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v98 = llvm.load %p97 : !llvm.ptr<3> -> i32
    %v99 = llvm.mul %v88, %c3 : i32
    %v100 = llvm.xor %v99, %v98 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v101 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v101, ^then101, ^join101
  ^then101:
    %p103 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v104 = nvvm.mbarrier.arrive %p103 : !llvm.ptr<3> -> i64
    llvm.br ^join101
  ^join101:
    %p105 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p105, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v106 = llvm.xor %v5, %c17 : i32
    %v107 = llvm.mul %v106, %c16 : i32
    %v108 = llvm.add %v107, %c1024 : i32
    %p109 = llvm.getelementptr %smem3[%v108] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v110 = llvm.load %p109 : !llvm.ptr<3> -> i32
    %v111 = llvm.mul %v100, %c3 : i32
    %v112 = llvm.xor %v111, %v110 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v113 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v113, ^then113, ^join113
  ^then113:
    %p115 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v116 = nvvm.mbarrier.arrive %p115 : !llvm.ptr<3> -> i64
    llvm.br ^join113
  ^join113:
    %v117 = llvm.mul %block2, %c64 : i32
    %v118 = llvm.add %v117, %tid1 : i32
    %p119 = llvm.getelementptr %out[%v118] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v112, %p119 : i32, !llvm.ptr<1>
    llvm.br ^join55
  ^join55:
    llvm.br ^join13
  ^join13:
    %v120 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v120, ^then120, ^join120
  ^then120:
    %v122 = llvm.mul %block2, %c64 : i32
    %v123 = llvm.add %v122, %tid1 : i32
    %p124 = llvm.getelementptr %out[%v123] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p124 : i32, !llvm.ptr<1>
    llvm.br ^join120
  ^join120:
    llvm.return
  }

  llvm.func @wrong2(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
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
    %v12 = llvm.icmp "eq" %tid1, %c0 : i32
    llvm.cond_br %v12, ^then12, ^join12
  ^then12:
    %p14 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %p14, %c32 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^join12
  ^join12:
    nvvm.barrier
    %v15 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v15, ^then15, ^else15
  ^then15:
    %p17 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p17, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v18 = llvm.add %v5, %c0 : i32
    %v19 = llvm.mul %v18, %c16 : i32
    %v20 = llvm.add %v19, %c0 : i32
    %p21 = llvm.getelementptr %in[%v20] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v22 = llvm.add %v19, %c1024 : i32
    %p23 = llvm.getelementptr %smem3[%v22] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p23, %p21, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p24 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p24 {noinc = true} : !llvm.ptr<3>
    %p25 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p25, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v26 = llvm.add %v5, %c0 : i32
    %v27 = llvm.mul %v26, %c16 : i32
    %v28 = llvm.add %v27, %c512 : i32
    %p29 = llvm.getelementptr %in[%v28] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v30 = llvm.add %v27, %c1536 : i32
    %p31 = llvm.getelementptr %smem3[%v30] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p31, %p29, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p32 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p32 {noinc = true} : !llvm.ptr<3>
    %p33 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p33, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v34 = llvm.add %v5, %c0 : i32
    %v35 = llvm.mul %v34, %c16 : i32
    %v36 = llvm.add %v35, %c1024 : i32
    %p37 = llvm.getelementptr %in[%v36] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v38 = llvm.add %v35, %c1024 : i32
    %p39 = llvm.getelementptr %smem3[%v38] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p39, %p37, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p40 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p40 {noinc = true} : !llvm.ptr<3>
    %p41 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p41, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v42 = llvm.add %v5, %c0 : i32
    %v43 = llvm.mul %v42, %c16 : i32
    %v44 = llvm.add %v43, %c1536 : i32
    %p45 = llvm.getelementptr %in[%v44] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v46 = llvm.add %v43, %c1536 : i32
    %p47 = llvm.getelementptr %smem3[%v46] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p47, %p45, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p48 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p48 {noinc = true} : !llvm.ptr<3>
    %p49 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p49, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v50 = llvm.add %v5, %c0 : i32
    %v51 = llvm.mul %v50, %c16 : i32
    %v52 = llvm.add %v51, %c2048 : i32
    %p53 = llvm.getelementptr %in[%v52] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v54 = llvm.add %v51, %c1024 : i32
    %p55 = llvm.getelementptr %smem3[%v54] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p55, %p53, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p56 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p56 {noinc = true} : !llvm.ptr<3>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    llvm.br ^join15
  ^else15:
    %v57 = llvm.icmp "eq" %v4, %c1 : i32
    llvm.cond_br %v57, ^then57, ^join57
  ^then57:
    %p59 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p59, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v60 = llvm.xor %v5, %c17 : i32
    %v61 = llvm.mul %v60, %c16 : i32
    %v62 = llvm.add %v61, %c1024 : i32
    %p63 = llvm.getelementptr %smem3[%v62] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v64 = llvm.load %p63 : !llvm.ptr<3> -> i32
    %v65 = llvm.mul %c0, %c3 : i32
    %v66 = llvm.xor %v65, %v64 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v67 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v67, ^then67, ^join67
  ^then67:
    %p69 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v70 = nvvm.mbarrier.arrive %p69 : !llvm.ptr<3> -> i64
    llvm.br ^join67
  ^join67:
    %p71 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p71, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v72 = llvm.xor %v5, %c17 : i32
    %v73 = llvm.mul %v72, %c16 : i32
    %v74 = llvm.add %v73, %c1536 : i32
    %p75 = llvm.getelementptr %smem3[%v74] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v76 = llvm.load %p75 : !llvm.ptr<3> -> i32
    %v77 = llvm.mul %v66, %c3 : i32
    %v78 = llvm.xor %v77, %v76 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v79 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v79, ^then79, ^join79
  ^then79:
    %p81 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v82 = nvvm.mbarrier.arrive %p81 : !llvm.ptr<3> -> i64
    llvm.br ^join79
  ^join79:
    %p83 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p83, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v84 = llvm.xor %v5, %c17 : i32
    %v85 = llvm.mul %v84, %c16 : i32
    %v86 = llvm.add %v85, %c1024 : i32
    %p87 = llvm.getelementptr %smem3[%v86] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v88 = llvm.load %p87 : !llvm.ptr<3> -> i32
    %v89 = llvm.mul %v78, %c3 : i32
    %v90 = llvm.xor %v89, %v88 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v91 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v91, ^then91, ^join91
  ^then91:
    %p93 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v94 = nvvm.mbarrier.arrive %p93 : !llvm.ptr<3> -> i64
    llvm.br ^join91
  ^join91:
    %p95 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p95, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v96 = llvm.xor %v5, %c17 : i32
    %v97 = llvm.mul %v96, %c16 : i32
    %v98 = llvm.add %v97, %c1536 : i32
    %p99 = llvm.getelementptr %smem3[%v98] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v100 = llvm.load %p99 : !llvm.ptr<3> -> i32
    %v101 = llvm.mul %v90, %c3 : i32
    %v102 = llvm.xor %v101, %v100 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v103 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v103, ^then103, ^join103
  ^then103:
    %p105 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v106 = nvvm.mbarrier.arrive %p105 : !llvm.ptr<3> -> i64
    llvm.br ^join103
  ^join103:
    %p107 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p107, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v108 = llvm.xor %v5, %c17 : i32
    %v109 = llvm.mul %v108, %c16 : i32
    %v110 = llvm.add %v109, %c1024 : i32
    %p111 = llvm.getelementptr %smem3[%v110] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v112 = llvm.load %p111 : !llvm.ptr<3> -> i32
    %v113 = llvm.mul %v102, %c3 : i32
    %v114 = llvm.xor %v113, %v112 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v115 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v115, ^then115, ^join115
  ^then115:
    %p117 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v118 = nvvm.mbarrier.arrive %p117 : !llvm.ptr<3> -> i64
    llvm.br ^join115
  ^join115:
    %v119 = llvm.mul %block2, %c64 : i32
    %v120 = llvm.add %v119, %tid1 : i32
    %p121 = llvm.getelementptr %out[%v120] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v114, %p121 : i32, !llvm.ptr<1>
    llvm.br ^join57
  ^join57:
    llvm.br ^join15
  ^join15:
    %v122 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v122, ^then122, ^join122
  ^then122:
    %v124 = llvm.mul %block2, %c64 : i32
    %v125 = llvm.add %v124, %tid1 : i32
    %p126 = llvm.getelementptr %out[%v125] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p126 : i32, !llvm.ptr<1>
    llvm.br ^join122
  ^join122:
    llvm.return
  }

  llvm.func @wrong3(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
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
    %c7 = llvm.mlir.constant(7 : i32) : i32
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
    nvvm.mbarrier.try_wait.parity %p30, %c0, %c1000 : !llvm.ptr<3>, i32, i32
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
    nvvm.mbarrier.try_wait.parity %p46, %c1, %c1000 : !llvm.ptr<3>, i32, i32
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
    %v76 = llvm.icmp "eq" %v5, %c3 : i32
    llvm.cond_br %v76, ^then76, ^join76
  ^then76:
    %p78 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %c7, %p78 : i32, !llvm.ptr<3>
    llvm.br ^join76
  ^join76:
    nvvm.bar.warp.sync %cm1 : i32
    %v79 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v79, ^then79, ^join79
  ^then79:
    %p81 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v82 = nvvm.mbarrier.arrive %p81 : !llvm.ptr<3> -> i64
    llvm.br ^join79
  ^join79:
    %p83 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p83, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v84 = llvm.xor %v5, %c17 : i32
    %v85 = llvm.mul %v84, %c16 : i32
    %v86 = llvm.add %v85, %c1024 : i32
    %p87 = llvm.getelementptr %smem3[%v86] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v88 = llvm.load %p87 : !llvm.ptr<3> -> i32
    %v89 = llvm.mul %v75, %c3 : i32
    %v90 = llvm.xor %v89, %v88 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v91 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v91, ^then91, ^join91
  ^then91:
    %p93 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v94 = nvvm.mbarrier.arrive %p93 : !llvm.ptr<3> -> i64
    llvm.br ^join91
  ^join91:
    %p95 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p95, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v96 = llvm.xor %v5, %c17 : i32
    %v97 = llvm.mul %v96, %c16 : i32
    %v98 = llvm.add %v97, %c1536 : i32
    %p99 = llvm.getelementptr %smem3[%v98] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v100 = llvm.load %p99 : !llvm.ptr<3> -> i32
    %v101 = llvm.mul %v90, %c3 : i32
    %v102 = llvm.xor %v101, %v100 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v103 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v103, ^then103, ^join103
  ^then103:
    %p105 = llvm.getelementptr %smem3[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v106 = nvvm.mbarrier.arrive %p105 : !llvm.ptr<3> -> i64
    llvm.br ^join103
  ^join103:
    %p107 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p107, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v108 = llvm.xor %v5, %c17 : i32
    %v109 = llvm.mul %v108, %c16 : i32
    %v110 = llvm.add %v109, %c1024 : i32
    %p111 = llvm.getelementptr %smem3[%v110] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v112 = llvm.load %p111 : !llvm.ptr<3> -> i32
    %v113 = llvm.mul %v102, %c3 : i32
    %v114 = llvm.xor %v113, %v112 : i32
    nvvm.bar.warp.sync %cm1 : i32
    %v115 = llvm.icmp "eq" %v5, %c0 : i32
    llvm.cond_br %v115, ^then115, ^join115
  ^then115:
    %p117 = llvm.getelementptr %smem3[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v118 = nvvm.mbarrier.arrive %p117 : !llvm.ptr<3> -> i64
    llvm.br ^join115
  ^join115:
    %v119 = llvm.mul %block2, %c64 : i32
    %v120 = llvm.add %v119, %tid1 : i32
    %p121 = llvm.getelementptr %out[%v120] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v114, %p121 : i32, !llvm.ptr<1>
    llvm.br ^join54
  ^join54:
    llvm.br ^join12
  ^join12:
    %v122 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v122, ^then122, ^join122
  ^then122:
    %v124 = llvm.mul %block2, %c64 : i32
    %v125 = llvm.add %v124, %tid1 : i32
    %p126 = llvm.getelementptr %out[%v125] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p126 : i32, !llvm.ptr<1>
    llvm.br ^join122
  ^join122:
    llvm.return
  }
}
