// A tile in rows of 128 bytes, swizzled; only what is read was written.
// wrong1: the descriptor says 64 bytes. wrong2: the tile does not start at a multiple of 1,024. wrong3: a base offset.
// wrong4: two of the warps pass another descriptor.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c7 = llvm.mlir.constant(7 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c8192 = llvm.mlir.constant(8192 : i32) : i32 //- wrong2
    //+ wrong2: %c8320 = llvm.mlir.constant(8320 : i32) : i32
    %c2048 = llvm.mlir.constant(2048 : i32) : i32
    %c2064 = llvm.mlir.constant(2064 : i32) : i32
    %c262143 = llvm.mlir.constant(262143 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    //+ wrong3: %c4612249243258716160_i64 = llvm.mlir.constant(4612249243258716160 : i64) : i64
    %c4611686293305294848_i64 = llvm.mlir.constant(4611686293305294848 : i64) : i64 //- wrong1
    //+ wrong1: %cm9223371761976868864_i64 = llvm.mlir.constant(-9223371761976868864 : i64) : i64
    //+ wrong4: %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v6, ^then6, ^join6
  ^then6:
    %v8 = llvm.and %tid1, %c7 : i32
    %v9 = llvm.xor %c0, %v8 : i32
    %v10 = llvm.mul %tid1, %c128 : i32
    %v11 = llvm.mul %v9, %c16 : i32
    %v12 = llvm.add %v10, %v11 : i32
    %v13 = llvm.add %v12, %c0 : i32 //- wrong2
    //+ wrong2: %v13 = llvm.add %v12, %c128 : i32
    %p14 = llvm.getelementptr %smem3[%v13] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v15 = llvm.mul %tid1, %c32 : i32
    %v16 = llvm.add %v15, %c0 : i32
    %p17 = llvm.getelementptr %in[%v16] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v18 = llvm.load %p17 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v18, %p14 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join6
  ^join6:
    %v19 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v19, ^then19, ^join19
  ^then19:
    %v21 = llvm.and %tid1, %c7 : i32
    %v22 = llvm.xor %c1, %v21 : i32
    %v23 = llvm.mul %tid1, %c128 : i32
    %v24 = llvm.mul %v22, %c16 : i32
    %v25 = llvm.add %v23, %v24 : i32
    %v26 = llvm.add %v25, %c0 : i32 //- wrong2
    //+ wrong2: %v26 = llvm.add %v25, %c128 : i32
    %p27 = llvm.getelementptr %smem3[%v26] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v28 = llvm.mul %tid1, %c32 : i32
    %v29 = llvm.add %v28, %c16 : i32
    %p30 = llvm.getelementptr %in[%v29] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v31 = llvm.load %p30 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v31, %p27 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join19
  ^join19:
    %v32 = llvm.icmp "ult" %tid1, %c8 : i32
    llvm.cond_br %v32, ^then32, ^join32
  ^then32:
    %v34 = llvm.and %tid1, %c7 : i32
    %v35 = llvm.xor %c0, %v34 : i32
    %v36 = llvm.mul %tid1, %c128 : i32
    %v37 = llvm.mul %v35, %c16 : i32
    %v38 = llvm.add %v36, %v37 : i32
    %v39 = llvm.add %v38, %c8192 : i32 //- wrong2
    //+ wrong2: %v39 = llvm.add %v38, %c8320 : i32
    %p40 = llvm.getelementptr %smem3[%v39] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v41 = llvm.mul %tid1, %c32 : i32
    %v42 = llvm.add %v41, %c2048 : i32
    %p43 = llvm.getelementptr %in[%v42] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v44 = llvm.load %p43 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v44, %p40 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join32
  ^join32:
    %v45 = llvm.icmp "ult" %tid1, %c8 : i32
    llvm.cond_br %v45, ^then45, ^join45
  ^then45:
    %v47 = llvm.and %tid1, %c7 : i32
    %v48 = llvm.xor %c1, %v47 : i32
    %v49 = llvm.mul %tid1, %c128 : i32
    %v50 = llvm.mul %v48, %c16 : i32
    %v51 = llvm.add %v49, %v50 : i32
    %v52 = llvm.add %v51, %c8192 : i32 //- wrong2
    //+ wrong2: %v52 = llvm.add %v51, %c8320 : i32
    %p53 = llvm.getelementptr %smem3[%v52] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v54 = llvm.mul %tid1, %c32 : i32
    %v55 = llvm.add %v54, %c2064 : i32
    %p56 = llvm.getelementptr %in[%v55] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v57 = llvm.load %p56 : !llvm.ptr<1> -> vector<4xi32>
    llvm.store %v57, %p53 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join45
  ^join45:
    %v58 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v59 = llvm.add %v58, %c0 : i32 //- wrong2
    //+ wrong2: %v59 = llvm.add %v58, %c128 : i32
    %v60 = llvm.and %v59, %c262143 : i32
    %v61 = llvm.lshr %v60, %c4 : i32
    %v62 = llvm.zext %v61 : i32 to i64
    %d63 = llvm.add %v62, %c4611686293305294848_i64 : i64 //- wrong1, wrong3
    //+ wrong1: %d63 = llvm.add %v62, %cm9223371761976868864_i64 : i64
    //+ wrong3: %d63 = llvm.add %v62, %c4612249243258716160_i64 : i64
    %v64 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32 //- wrong4
    %v65 = llvm.add %v64, %c8192 : i32 //- wrong2, wrong4
    //+ wrong2: %v65 = llvm.add %v64, %c8320 : i32
    %v66 = llvm.and %v65, %c262143 : i32 //- wrong4
    %v67 = llvm.lshr %v66, %c4 : i32 //- wrong4
    %v68 = llvm.zext %v67 : i32 to i64 //- wrong4
    %d69 = llvm.add %v68, %c4611686293305294848_i64 : i64 //- wrong1, wrong4
    //+ wrong1: %d69 = llvm.add %v68, %cm9223371761976868864_i64 : i64
    //+ wrong4: %v64 = llvm.lshr %v4, %c1 : i32
    //+ wrong4: %v65 = llvm.mul %v64, %c1024 : i32
    //+ wrong4: %v66 = llvm.add %v65, %c8192 : i32
    //+ wrong4: %v67 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    //+ wrong4: %v68 = llvm.add %v67, %v66 : i32
    //+ wrong4: %v69 = llvm.and %v68, %c262143 : i32
    //+ wrong4: %v70 = llvm.lshr %v69, %c4 : i32
    //+ wrong4: %v71 = llvm.zext %v70 : i32 to i64
    //+ wrong4: %d72 = llvm.add %v71, %c4611686293305294848_i64 : i64
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    nvvm.wgmma.fence.aligned
    %w70:4 = tile.wgmma 8 bf16 lhs_descriptor %d63 rhs_descriptor %d69 : f32, f32, f32, f32 //- wrong4
    //+ wrong4: %w73:4 = tile.wgmma 8 bf16 lhs_descriptor %d63 rhs_descriptor %d72 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w71:4 = tile.wgmma_wait 0(%w70#0, %w70#1, %w70#2, %w70#3) : f32, f32, f32, f32 //- wrong4
    %v72 = llvm.fadd %w71#0, %w71#1 : f32 //- wrong4
    %v73 = llvm.fadd %v72, %w71#2 : f32 //- wrong4
    %v74 = llvm.fadd %v73, %w71#3 : f32 //- wrong4
    %v75 = llvm.mul %block2, %c128 : i32 //- wrong4
    %v76 = llvm.add %v75, %tid1 : i32 //- wrong4
    %p77 = llvm.getelementptr %out[%v76] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32 //- wrong4
    llvm.store %v74, %p77 : f32, !llvm.ptr<1> //- wrong4
    //+ wrong4: %w74:4 = tile.wgmma_wait 0(%w73#0, %w73#1, %w73#2, %w73#3) : f32, f32, f32, f32
    //+ wrong4: %v75 = llvm.fadd %w74#0, %w74#1 : f32
    //+ wrong4: %v76 = llvm.fadd %v75, %w74#2 : f32
    //+ wrong4: %v77 = llvm.fadd %v76, %w74#3 : f32
    //+ wrong4: %v78 = llvm.mul %block2, %c128 : i32
    //+ wrong4: %v79 = llvm.add %v78, %tid1 : i32
    //+ wrong4: %p80 = llvm.getelementptr %out[%v79] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    //+ wrong4: llvm.store %v77, %p80 : f32, !llvm.ptr<1>
    llvm.return
  }
}
