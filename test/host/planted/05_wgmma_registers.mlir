// An accumulator belongs to the tensor cores from wgmma.fence to the wait.
// wrong1: waits for all but the newest group. wrong2: uses the result before the wait. wrong3: no wgmma.fence.
// wrong4: writes an accumulator after the fence. wrong5: in another block than the fence.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c256 = llvm.mlir.constant(256 : i32) : i32
    %c384 = llvm.mlir.constant(384 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c8192 = llvm.mlir.constant(8192 : i32) : i32
    %c262143 = llvm.mlir.constant(262143 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c4611686293305294848_i64 = llvm.mlir.constant(4611686293305294848 : i64) : i64
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.add %tid1, %c0 : i32
    %v7 = llvm.mul %v6, %c16 : i32
    %v8 = llvm.add %v7, %c0 : i32
    %p9 = llvm.getelementptr %in[%v8] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v10 = llvm.load %p9 : !llvm.ptr<1> -> vector<4xi32>
    %v11 = llvm.add %v7, %c0 : i32
    %p12 = llvm.getelementptr %smem3[%v11] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v10, %p12 : vector<4xi32>, !llvm.ptr<3>
    %v13 = llvm.add %tid1, %c128 : i32
    %v14 = llvm.mul %v13, %c16 : i32
    %v15 = llvm.add %v14, %c0 : i32
    %p16 = llvm.getelementptr %in[%v15] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v17 = llvm.load %p16 : !llvm.ptr<1> -> vector<4xi32>
    %v18 = llvm.add %v14, %c0 : i32
    %p19 = llvm.getelementptr %smem3[%v18] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v17, %p19 : vector<4xi32>, !llvm.ptr<3>
    %v20 = llvm.add %tid1, %c256 : i32
    %v21 = llvm.mul %v20, %c16 : i32
    %v22 = llvm.add %v21, %c0 : i32
    %p23 = llvm.getelementptr %in[%v22] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v24 = llvm.load %p23 : !llvm.ptr<1> -> vector<4xi32>
    %v25 = llvm.add %v21, %c0 : i32
    %p26 = llvm.getelementptr %smem3[%v25] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v24, %p26 : vector<4xi32>, !llvm.ptr<3>
    %v27 = llvm.add %tid1, %c384 : i32
    %v28 = llvm.mul %v27, %c16 : i32
    %v29 = llvm.add %v28, %c0 : i32
    %p30 = llvm.getelementptr %in[%v29] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v31 = llvm.load %p30 : !llvm.ptr<1> -> vector<4xi32>
    %v32 = llvm.add %v28, %c0 : i32
    %p33 = llvm.getelementptr %smem3[%v32] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v31, %p33 : vector<4xi32>, !llvm.ptr<3>
    %v34 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v34, ^then34, ^join34
  ^then34:
    %v36 = llvm.add %tid1, %c0 : i32
    %v37 = llvm.mul %v36, %c16 : i32
    %v38 = llvm.add %v37, %c8192 : i32
    %p39 = llvm.getelementptr %in[%v38] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v40 = llvm.load %p39 : !llvm.ptr<1> -> vector<4xi32>
    %v41 = llvm.add %v37, %c8192 : i32
    %p42 = llvm.getelementptr %smem3[%v41] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v40, %p42 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join34
  ^join34:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    //+ wrong5: nvvm.wgmma.fence.aligned
    //+ wrong5: llvm.br ^behind
  //+ wrong5: ^behind:
    %v43 = llvm.uitofp %tid1 : i32 to f32
    %v44 = llvm.uitofp %tid1 : i32 to f32
    %v45 = llvm.uitofp %tid1 : i32 to f32
    %v46 = llvm.uitofp %tid1 : i32 to f32
    nvvm.wgmma.fence.aligned //- wrong3, wrong5
    %v47 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v48 = llvm.add %v47, %c0 : i32
    %v49 = llvm.and %v48, %c262143 : i32
    %v50 = llvm.lshr %v49, %c4 : i32
    %v51 = llvm.zext %v50 : i32 to i64
    %d52 = llvm.add %v51, %c4611686293305294848_i64 : i64
    %v53 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v54 = llvm.add %v53, %c8192 : i32
    %v55 = llvm.and %v54, %c262143 : i32
    %v56 = llvm.lshr %v55, %c4 : i32
    %v57 = llvm.zext %v56 : i32 to i64
    %d58 = llvm.add %v57, %c4611686293305294848_i64 : i64
    %w59:4 = tile.wgmma 8 bf16 lhs_descriptor %d52 rhs_descriptor %d58 acc %v43, %v44, %v45, %v46 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w60:4 = tile.wgmma_wait 0(%w59#0, %w59#1, %w59#2, %w59#3) : f32, f32, f32, f32 //- wrong1, wrong2
    //+ wrong1: %w60:4 = tile.wgmma_wait 1(%w59#0, %w59#1, %w59#2, %w59#3) : f32, f32, f32, f32
    //+ wrong1: nvvm.wgmma.wait.group.sync.aligned 0
    %v61 = llvm.fadd %w60#0, %w60#1 : f32 //- wrong2
    %v62 = llvm.fadd %v61, %w60#2 : f32 //- wrong2
    %v63 = llvm.fadd %v62, %w60#3 : f32 //- wrong2
    %v64 = llvm.mul %block2, %c128 : i32 //- wrong2
    %v65 = llvm.add %v64, %tid1 : i32 //- wrong2
    %p66 = llvm.getelementptr %out[%v65] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32 //- wrong2
    llvm.store %v63, %p66 : f32, !llvm.ptr<1> //- wrong2
    //+ wrong2: %v60 = llvm.fadd %w59#0, %w59#0 : f32
    //+ wrong2: %w61:4 = tile.wgmma_wait 0(%w59#0, %w59#1, %w59#2, %w59#3) : f32, f32, f32, f32
    //+ wrong2: %v62 = llvm.fadd %w61#0, %w61#1 : f32
    //+ wrong2: %v63 = llvm.fadd %v62, %w61#2 : f32
    //+ wrong2: %v64 = llvm.fadd %v63, %w61#3 : f32
    //+ wrong2: %v65 = llvm.fadd %v64, %v60 : f32
    //+ wrong2: %v66 = llvm.mul %block2, %c128 : i32
    //+ wrong2: %v67 = llvm.add %v66, %tid1 : i32
    //+ wrong2: %p68 = llvm.getelementptr %out[%v67] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    //+ wrong2: llvm.store %v65, %p68 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong4(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c256 = llvm.mlir.constant(256 : i32) : i32
    %c384 = llvm.mlir.constant(384 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c8192 = llvm.mlir.constant(8192 : i32) : i32
    %c262143 = llvm.mlir.constant(262143 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c4611686293305294848_i64 = llvm.mlir.constant(4611686293305294848 : i64) : i64
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.add %tid1, %c0 : i32
    %v7 = llvm.mul %v6, %c16 : i32
    %v8 = llvm.add %v7, %c0 : i32
    %p9 = llvm.getelementptr %in[%v8] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v10 = llvm.load %p9 : !llvm.ptr<1> -> vector<4xi32>
    %v11 = llvm.add %v7, %c0 : i32
    %p12 = llvm.getelementptr %smem3[%v11] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v10, %p12 : vector<4xi32>, !llvm.ptr<3>
    %v13 = llvm.add %tid1, %c128 : i32
    %v14 = llvm.mul %v13, %c16 : i32
    %v15 = llvm.add %v14, %c0 : i32
    %p16 = llvm.getelementptr %in[%v15] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v17 = llvm.load %p16 : !llvm.ptr<1> -> vector<4xi32>
    %v18 = llvm.add %v14, %c0 : i32
    %p19 = llvm.getelementptr %smem3[%v18] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v17, %p19 : vector<4xi32>, !llvm.ptr<3>
    %v20 = llvm.add %tid1, %c256 : i32
    %v21 = llvm.mul %v20, %c16 : i32
    %v22 = llvm.add %v21, %c0 : i32
    %p23 = llvm.getelementptr %in[%v22] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v24 = llvm.load %p23 : !llvm.ptr<1> -> vector<4xi32>
    %v25 = llvm.add %v21, %c0 : i32
    %p26 = llvm.getelementptr %smem3[%v25] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v24, %p26 : vector<4xi32>, !llvm.ptr<3>
    %v27 = llvm.add %tid1, %c384 : i32
    %v28 = llvm.mul %v27, %c16 : i32
    %v29 = llvm.add %v28, %c0 : i32
    %p30 = llvm.getelementptr %in[%v29] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v31 = llvm.load %p30 : !llvm.ptr<1> -> vector<4xi32>
    %v32 = llvm.add %v28, %c0 : i32
    %p33 = llvm.getelementptr %smem3[%v32] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v31, %p33 : vector<4xi32>, !llvm.ptr<3>
    %v34 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v34, ^then34, ^join34
  ^then34:
    %v36 = llvm.add %tid1, %c0 : i32
    %v37 = llvm.mul %v36, %c16 : i32
    %v38 = llvm.add %v37, %c8192 : i32
    %p39 = llvm.getelementptr %in[%v38] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v40 = llvm.load %p39 : !llvm.ptr<1> -> vector<4xi32>
    %v41 = llvm.add %v37, %c8192 : i32
    %p42 = llvm.getelementptr %smem3[%v41] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v40, %p42 : vector<4xi32>, !llvm.ptr<3>
    llvm.br ^join34
  ^join34:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    %v43 = llvm.uitofp %tid1 : i32 to f32
    %v44 = llvm.uitofp %tid1 : i32 to f32
    %v45 = llvm.uitofp %tid1 : i32 to f32
    %v46 = llvm.uitofp %tid1 : i32 to f32
    nvvm.wgmma.fence.aligned
    %v47 = llvm.fadd %v44, %v44 : f32
    %v48 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v49 = llvm.add %v48, %c0 : i32
    %v50 = llvm.and %v49, %c262143 : i32
    %v51 = llvm.lshr %v50, %c4 : i32
    %v52 = llvm.zext %v51 : i32 to i64
    %d53 = llvm.add %v52, %c4611686293305294848_i64 : i64
    %v54 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v55 = llvm.add %v54, %c8192 : i32
    %v56 = llvm.and %v55, %c262143 : i32
    %v57 = llvm.lshr %v56, %c4 : i32
    %v58 = llvm.zext %v57 : i32 to i64
    %d59 = llvm.add %v58, %c4611686293305294848_i64 : i64
    %w60:4 = tile.wgmma 8 bf16 lhs_descriptor %d53 rhs_descriptor %d59 acc %v43, %v44, %v47, %v46 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w61:4 = tile.wgmma_wait 0(%w60#0, %w60#1, %w60#2, %w60#3) : f32, f32, f32, f32
    %v62 = llvm.fadd %w61#0, %w61#1 : f32
    %v63 = llvm.fadd %v62, %w61#2 : f32
    %v64 = llvm.fadd %v63, %w61#3 : f32
    %v65 = llvm.mul %block2, %c128 : i32
    %v66 = llvm.add %v65, %tid1 : i32
    %p67 = llvm.getelementptr %out[%v66] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v64, %p67 : f32, !llvm.ptr<1>
    llvm.return
  }
}
