// Four warps multiply tiles that a fifth warp copies, round after round, into one stage.
// wrong: they release the stage before the wait for the product that reads it.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c256 = llvm.mlir.constant(256 : i32) : i32
    %c384 = llvm.mlir.constant(384 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c262143 = llvm.mlir.constant(262143 : i32) : i32
    %c4611686293305294848_i64 = llvm.mlir.constant(4611686293305294848 : i64) : i64
    %c9216 = llvm.mlir.constant(9216 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c160 = llvm.mlir.constant(160 : i32) : i32
    %c2048 = llvm.mlir.constant(2048 : i32) : i32
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
    nvvm.mbarrier.init %p9, %c4 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^join6
  ^join6:
    %v10 = llvm.icmp "ult" %v4, %c4 : i32
    llvm.cond_br %v10, ^then10, ^join10
  ^then10:
    %v12 = llvm.add %tid1, %c0 : i32
    %v13 = llvm.mul %v12, %c16 : i32
    %v14 = llvm.add %v13, %c0 : i32
    %p15 = llvm.getelementptr %in[%v14] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v16 = llvm.load %p15 : !llvm.ptr<1> -> vector<4xi32>
    %v17 = llvm.add %v13, %c1024 : i32
    %p18 = llvm.getelementptr %smem3[%v17] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v16, %p18 : vector<4xi32>, !llvm.ptr<3>
    %v19 = llvm.add %tid1, %c128 : i32
    %v20 = llvm.mul %v19, %c16 : i32
    %v21 = llvm.add %v20, %c0 : i32
    %p22 = llvm.getelementptr %in[%v21] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v23 = llvm.load %p22 : !llvm.ptr<1> -> vector<4xi32>
    %v24 = llvm.add %v20, %c1024 : i32
    %p25 = llvm.getelementptr %smem3[%v24] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v23, %p25 : vector<4xi32>, !llvm.ptr<3>
    %v26 = llvm.add %tid1, %c256 : i32
    %v27 = llvm.mul %v26, %c16 : i32
    %v28 = llvm.add %v27, %c0 : i32
    %p29 = llvm.getelementptr %in[%v28] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v30 = llvm.load %p29 : !llvm.ptr<1> -> vector<4xi32>
    %v31 = llvm.add %v27, %c1024 : i32
    %p32 = llvm.getelementptr %smem3[%v31] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v30, %p32 : vector<4xi32>, !llvm.ptr<3>
    %v33 = llvm.add %tid1, %c384 : i32
    %v34 = llvm.mul %v33, %c16 : i32
    %v35 = llvm.add %v34, %c0 : i32
    %p36 = llvm.getelementptr %in[%v35] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v37 = llvm.load %p36 : !llvm.ptr<1> -> vector<4xi32>
    %v38 = llvm.add %v34, %c1024 : i32
    %p39 = llvm.getelementptr %smem3[%v38] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v37, %p39 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join10
  ^join10:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    %v40 = llvm.icmp "ult" %v4, %c4 : i32
    llvm.cond_br %v40, ^then40, ^else40
  ^then40:
    %p42 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p42, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.wgmma.fence.aligned
    %v43 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v44 = llvm.add %v43, %c1024 : i32
    %v45 = llvm.and %v44, %c262143 : i32
    %v46 = llvm.lshr %v45, %c4 : i32
    %v47 = llvm.zext %v46 : i32 to i64
    %d48 = llvm.add %v47, %c4611686293305294848_i64 : i64
    %v49 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v50 = llvm.add %v49, %c9216 : i32
    %v51 = llvm.and %v50, %c262143 : i32
    %v52 = llvm.lshr %v51, %c4 : i32
    %v53 = llvm.zext %v52 : i32 to i64
    %d54 = llvm.add %v53, %c4611686293305294848_i64 : i64
    %w55:4 = tile.wgmma 8 bf16 lhs_descriptor %d48 rhs_descriptor %d54 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w56:4 = tile.wgmma_wait 0(%w55#0, %w55#1, %w55#2, %w55#3) : f32, f32, f32, f32 //- wrong
    %v57 = llvm.fadd %w56#0, %w56#1 : f32 //- wrong
    %v58 = llvm.fadd %v57, %w56#2 : f32 //- wrong
    %v59 = llvm.fadd %v58, %w56#3 : f32 //- wrong
    nvvm.bar.warp.sync %cm1 : i32
    %v60 = llvm.icmp "eq" %v5, %c0 : i32 //- wrong
    llvm.cond_br %v60, ^then60, ^join60 //- wrong
  ^then60: //- wrong
    %p62 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 //- wrong
    %v63 = nvvm.mbarrier.arrive %p62 : !llvm.ptr<3> -> i64 //- wrong
    llvm.br ^join60 //- wrong
  ^join60: //- wrong
    //+ wrong: %v56 = llvm.icmp "eq" %v5, %c0 : i32
    //+ wrong: llvm.cond_br %v56, ^then56, ^join56
  //+ wrong: ^then56:
    //+ wrong: %p58 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong: %v59 = nvvm.mbarrier.arrive %p58 : !llvm.ptr<3> -> i64
    //+ wrong: llvm.br ^join56
  //+ wrong: ^join56:
    //+ wrong: %w60:4 = tile.wgmma_wait 0(%w55#0, %w55#1, %w55#2, %w55#3) : f32, f32, f32, f32
    //+ wrong: %v61 = llvm.fadd %w60#0, %w60#1 : f32
    //+ wrong: %v62 = llvm.fadd %v61, %w60#2 : f32
    //+ wrong: %v63 = llvm.fadd %v62, %w60#3 : f32
    %p64 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p64, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.wgmma.fence.aligned
    %v65 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v66 = llvm.add %v65, %c1024 : i32
    %v67 = llvm.and %v66, %c262143 : i32
    %v68 = llvm.lshr %v67, %c4 : i32
    %v69 = llvm.zext %v68 : i32 to i64
    %d70 = llvm.add %v69, %c4611686293305294848_i64 : i64
    %v71 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v72 = llvm.add %v71, %c9216 : i32
    %v73 = llvm.and %v72, %c262143 : i32
    %v74 = llvm.lshr %v73, %c4 : i32
    %v75 = llvm.zext %v74 : i32 to i64
    %d76 = llvm.add %v75, %c4611686293305294848_i64 : i64
    %w77:4 = tile.wgmma 8 bf16 lhs_descriptor %d70 rhs_descriptor %d76 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w78:4 = tile.wgmma_wait 0(%w77#0, %w77#1, %w77#2, %w77#3) : f32, f32, f32, f32 //- wrong
    %v79 = llvm.fadd %w78#0, %w78#1 : f32 //- wrong
    %v80 = llvm.fadd %v79, %w78#2 : f32 //- wrong
    %v81 = llvm.fadd %v80, %w78#3 : f32 //- wrong
    nvvm.bar.warp.sync %cm1 : i32
    %v82 = llvm.icmp "eq" %v5, %c0 : i32 //- wrong
    llvm.cond_br %v82, ^then82, ^join82 //- wrong
  ^then82: //- wrong
    %p84 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 //- wrong
    %v85 = nvvm.mbarrier.arrive %p84 : !llvm.ptr<3> -> i64 //- wrong
    llvm.br ^join82 //- wrong
  ^join82: //- wrong
    %v86 = llvm.fadd %v59, %v81 : f32 //- wrong
    //+ wrong: %v78 = llvm.icmp "eq" %v5, %c0 : i32
    //+ wrong: llvm.cond_br %v78, ^then78, ^join78
  //+ wrong: ^then78:
    //+ wrong: %p80 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong: %v81 = nvvm.mbarrier.arrive %p80 : !llvm.ptr<3> -> i64
    //+ wrong: llvm.br ^join78
  //+ wrong: ^join78:
    //+ wrong: %w82:4 = tile.wgmma_wait 0(%w77#0, %w77#1, %w77#2, %w77#3) : f32, f32, f32, f32
    //+ wrong: %v83 = llvm.fadd %w82#0, %w82#1 : f32
    //+ wrong: %v84 = llvm.fadd %v83, %w82#2 : f32
    //+ wrong: %v85 = llvm.fadd %v84, %w82#3 : f32
    //+ wrong: %v86 = llvm.fadd %v63, %v85 : f32
    %p87 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p87, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.wgmma.fence.aligned
    %v88 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v89 = llvm.add %v88, %c1024 : i32
    %v90 = llvm.and %v89, %c262143 : i32
    %v91 = llvm.lshr %v90, %c4 : i32
    %v92 = llvm.zext %v91 : i32 to i64
    %d93 = llvm.add %v92, %c4611686293305294848_i64 : i64
    %v94 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v95 = llvm.add %v94, %c9216 : i32
    %v96 = llvm.and %v95, %c262143 : i32
    %v97 = llvm.lshr %v96, %c4 : i32
    %v98 = llvm.zext %v97 : i32 to i64
    %d99 = llvm.add %v98, %c4611686293305294848_i64 : i64
    %w100:4 = tile.wgmma 8 bf16 lhs_descriptor %d93 rhs_descriptor %d99 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w101:4 = tile.wgmma_wait 0(%w100#0, %w100#1, %w100#2, %w100#3) : f32, f32, f32, f32 //- wrong
    %v102 = llvm.fadd %w101#0, %w101#1 : f32 //- wrong
    %v103 = llvm.fadd %v102, %w101#2 : f32 //- wrong
    %v104 = llvm.fadd %v103, %w101#3 : f32 //- wrong
    nvvm.bar.warp.sync %cm1 : i32
    %v105 = llvm.icmp "eq" %v5, %c0 : i32 //- wrong
    llvm.cond_br %v105, ^then105, ^join105 //- wrong
  ^then105: //- wrong
    %p107 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 //- wrong
    %v108 = nvvm.mbarrier.arrive %p107 : !llvm.ptr<3> -> i64 //- wrong
    llvm.br ^join105 //- wrong
  ^join105: //- wrong
    %v109 = llvm.fadd %v86, %v104 : f32 //- wrong
    //+ wrong: %v101 = llvm.icmp "eq" %v5, %c0 : i32
    //+ wrong: llvm.cond_br %v101, ^then101, ^join101
  //+ wrong: ^then101:
    //+ wrong: %p103 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong: %v104 = nvvm.mbarrier.arrive %p103 : !llvm.ptr<3> -> i64
    //+ wrong: llvm.br ^join101
  //+ wrong: ^join101:
    //+ wrong: %w105:4 = tile.wgmma_wait 0(%w100#0, %w100#1, %w100#2, %w100#3) : f32, f32, f32, f32
    //+ wrong: %v106 = llvm.fadd %w105#0, %w105#1 : f32
    //+ wrong: %v107 = llvm.fadd %v106, %w105#2 : f32
    //+ wrong: %v108 = llvm.fadd %v107, %w105#3 : f32
    //+ wrong: %v109 = llvm.fadd %v86, %v108 : f32
    %v110 = llvm.mul %block2, %c160 : i32
    %v111 = llvm.add %v110, %tid1 : i32
    %p112 = llvm.getelementptr %out[%v111] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v109, %p112 : f32, !llvm.ptr<1>
    llvm.br ^join40
  ^else40:
    %p113 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p113, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v114 = llvm.add %v5, %c0 : i32
    %v115 = llvm.mul %v114, %c16 : i32
    %v116 = llvm.add %v115, %c0 : i32
    %p117 = llvm.getelementptr %in[%v116] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v118 = llvm.add %v115, %c9216 : i32
    %p119 = llvm.getelementptr %smem3[%v118] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p119, %p117, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v120 = llvm.add %v5, %c32 : i32
    %v121 = llvm.mul %v120, %c16 : i32
    %v122 = llvm.add %v121, %c0 : i32
    %p123 = llvm.getelementptr %in[%v122] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v124 = llvm.add %v121, %c9216 : i32
    %p125 = llvm.getelementptr %smem3[%v124] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p125, %p123, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p126 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p126 {noinc = true} : !llvm.ptr<3>
    %p127 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p127, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %v128 = llvm.add %v5, %c0 : i32
    %v129 = llvm.mul %v128, %c16 : i32
    %v130 = llvm.add %v129, %c1024 : i32
    %p131 = llvm.getelementptr %in[%v130] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v132 = llvm.add %v129, %c9216 : i32
    %p133 = llvm.getelementptr %smem3[%v132] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p133, %p131, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v134 = llvm.add %v5, %c32 : i32
    %v135 = llvm.mul %v134, %c16 : i32
    %v136 = llvm.add %v135, %c1024 : i32
    %p137 = llvm.getelementptr %in[%v136] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v138 = llvm.add %v135, %c9216 : i32
    %p139 = llvm.getelementptr %smem3[%v138] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p139, %p137, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p140 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p140 {noinc = true} : !llvm.ptr<3>
    %p141 = llvm.getelementptr %smem3[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %p141, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %v142 = llvm.add %v5, %c0 : i32
    %v143 = llvm.mul %v142, %c16 : i32
    %v144 = llvm.add %v143, %c2048 : i32
    %p145 = llvm.getelementptr %in[%v144] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v146 = llvm.add %v143, %c9216 : i32
    %p147 = llvm.getelementptr %smem3[%v146] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p147, %p145, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v148 = llvm.add %v5, %c32 : i32
    %v149 = llvm.mul %v148, %c16 : i32
    %v150 = llvm.add %v149, %c2048 : i32
    %p151 = llvm.getelementptr %in[%v150] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v152 = llvm.add %v149, %c9216 : i32
    %p153 = llvm.getelementptr %smem3[%v152] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p153, %p151, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %p154 = llvm.getelementptr %smem3[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.mbarrier.arrive %p154 {noinc = true} : !llvm.ptr<3>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    %v155 = llvm.mul %block2, %c160 : i32
    %v156 = llvm.add %v155, %tid1 : i32
    %p157 = llvm.getelementptr %out[%v156] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p157 : i32, !llvm.ptr<1>
    llvm.br ^join40
  ^join40:
    llvm.return
  }
}
