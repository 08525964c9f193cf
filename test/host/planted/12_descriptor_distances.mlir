// Without a swizzle a descriptor needs both distances: between neighbours along k and between groups of eight rows.
// wrong: they are swapped.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c7 = llvm.mlir.constant(7 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %c320 = llvm.mlir.constant(320 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c8192 = llvm.mlir.constant(8192 : i32) : i32
    %c2048 = llvm.mlir.constant(2048 : i32) : i32
    %c2064 = llvm.mlir.constant(2064 : i32) : i32
    %c262143 = llvm.mlir.constant(262143 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c85899870208_i64 = llvm.mlir.constant(85899870208 : i64) : i64 //- wrong
    //+ wrong: %c34361049088_i64 = llvm.mlir.constant(34361049088 : i64) : i64
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v6, ^then6, ^join6
  ^then6:
    %v8 = llvm.and %tid1, %c7 : i32
    %v9 = llvm.mul %v8, %c16 : i32
    %v10 = llvm.lshr %tid1, %c3 : i32
    %v11 = llvm.mul %v10, %c320 : i32
    %v12 = llvm.add %v9, %v11 : i32
    %v13 = llvm.add %v12, %c0 : i32
    %v14 = llvm.add %v13, %c0 : i32
    %p15 = llvm.getelementptr %smem3[%v14] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v16 = llvm.mul %tid1, %c32 : i32
    %v17 = llvm.add %v16, %c0 : i32
    %p18 = llvm.getelementptr %in[%v17] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v19 = llvm.load %p18 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v19, %p15 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join6
  ^join6:
    %v20 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v20, ^then20, ^join20
  ^then20:
    %v22 = llvm.and %tid1, %c7 : i32
    %v23 = llvm.mul %v22, %c16 : i32
    %v24 = llvm.lshr %tid1, %c3 : i32
    %v25 = llvm.mul %v24, %c320 : i32
    %v26 = llvm.add %v23, %v25 : i32
    %v27 = llvm.add %v26, %c128 : i32
    %v28 = llvm.add %v27, %c0 : i32
    %p29 = llvm.getelementptr %smem3[%v28] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v30 = llvm.mul %tid1, %c32 : i32
    %v31 = llvm.add %v30, %c16 : i32
    %p32 = llvm.getelementptr %in[%v31] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v33 = llvm.load %p32 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v33, %p29 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join20
  ^join20:
    %v34 = llvm.icmp "ult" %tid1, %c8 : i32
    llvm.cond_br %v34, ^then34, ^join34
  ^then34:
    %v36 = llvm.and %tid1, %c7 : i32
    %v37 = llvm.mul %v36, %c16 : i32
    %v38 = llvm.lshr %tid1, %c3 : i32
    %v39 = llvm.mul %v38, %c320 : i32
    %v40 = llvm.add %v37, %v39 : i32
    %v41 = llvm.add %v40, %c0 : i32
    %v42 = llvm.add %v41, %c8192 : i32
    %p43 = llvm.getelementptr %smem3[%v42] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v44 = llvm.mul %tid1, %c32 : i32
    %v45 = llvm.add %v44, %c2048 : i32
    %p46 = llvm.getelementptr %in[%v45] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v47 = llvm.load %p46 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v47, %p43 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join34
  ^join34:
    %v48 = llvm.icmp "ult" %tid1, %c8 : i32
    llvm.cond_br %v48, ^then48, ^join48
  ^then48:
    %v50 = llvm.and %tid1, %c7 : i32
    %v51 = llvm.mul %v50, %c16 : i32
    %v52 = llvm.lshr %tid1, %c3 : i32
    %v53 = llvm.mul %v52, %c320 : i32
    %v54 = llvm.add %v51, %v53 : i32
    %v55 = llvm.add %v54, %c128 : i32
    %v56 = llvm.add %v55, %c8192 : i32
    %p57 = llvm.getelementptr %smem3[%v56] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v58 = llvm.mul %tid1, %c32 : i32
    %v59 = llvm.add %v58, %c2064 : i32
    %p60 = llvm.getelementptr %in[%v59] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v61 = llvm.load %p60 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v61, %p57 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join48
  ^join48:
    %v62 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v63 = llvm.add %v62, %c0 : i32
    %v64 = llvm.and %v63, %c262143 : i32
    %v65 = llvm.lshr %v64, %c4 : i32
    %v66 = llvm.zext %v65 : i32 to i64
    %d67 = llvm.add %v66, %c85899870208_i64 : i64 //- wrong
    //+ wrong: %d67 = llvm.add %v66, %c34361049088_i64 : i64
    %v68 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v69 = llvm.add %v68, %c8192 : i32
    %v70 = llvm.and %v69, %c262143 : i32
    %v71 = llvm.lshr %v70, %c4 : i32
    %v72 = llvm.zext %v71 : i32 to i64
    %d73 = llvm.add %v72, %c85899870208_i64 : i64 //- wrong
    //+ wrong: %d73 = llvm.add %v72, %c34361049088_i64 : i64
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    nvvm.wgmma.fence.aligned
    %w74:4 = tile.wgmma 8 bf16 lhs_descriptor %d67 rhs_descriptor %d73 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w75:4 = tile.wgmma_wait 0(%w74#0, %w74#1, %w74#2, %w74#3) : f32, f32, f32, f32
    %v76 = llvm.fadd %w75#0, %w75#1 : f32
    %v77 = llvm.fadd %v76, %w75#2 : f32
    %v78 = llvm.fadd %v77, %w75#3 : f32
    %v79 = llvm.mul %block2, %c128 : i32
    %v80 = llvm.add %v79, %tid1 : i32
    %p81 = llvm.getelementptr %out[%v80] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v78, %p81 : f32, !llvm.ptr<1>
    llvm.return
  }
}
