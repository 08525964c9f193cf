// Stores, then wgmma reads what they wrote through another proxy.
// wrong1: no proxy fence. wrong2: the fence comes before the stores. wrong3: only one of the four reading warps fences.
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
    //+ wrong2: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
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
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>} //- wrong1, wrong2
    nvvm.barrier
    nvvm.wgmma.fence.aligned
    %v43 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v44 = llvm.add %v43, %c0 : i32
    %v45 = llvm.and %v44, %c262143 : i32
    %v46 = llvm.lshr %v45, %c4 : i32
    %v47 = llvm.zext %v46 : i32 to i64
    %d48 = llvm.add %v47, %c4611686293305294848_i64 : i64
    %v49 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v50 = llvm.add %v49, %c8192 : i32
    %v51 = llvm.and %v50, %c262143 : i32
    %v52 = llvm.lshr %v51, %c4 : i32
    %v53 = llvm.zext %v52 : i32 to i64
    %d54 = llvm.add %v53, %c4611686293305294848_i64 : i64
    %w55:4 = tile.wgmma 8 bf16 lhs_descriptor %d48 rhs_descriptor %d54 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w56:4 = tile.wgmma_wait 0(%w55#0, %w55#1, %w55#2, %w55#3) : f32, f32, f32, f32
    %v57 = llvm.fadd %w56#0, %w56#1 : f32
    %v58 = llvm.fadd %v57, %w56#2 : f32
    %v59 = llvm.fadd %v58, %w56#3 : f32
    %v60 = llvm.mul %block2, %c128 : i32
    %v61 = llvm.add %v60, %tid1 : i32
    %p62 = llvm.getelementptr %out[%v61] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v59, %p62 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong3(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
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
    nvvm.barrier
    %v43 = llvm.icmp "eq" %v4, %c0 : i32
    llvm.cond_br %v43, ^then43, ^join43
  ^then43:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    llvm.br ^join43
  ^join43:
    nvvm.wgmma.fence.aligned
    %v45 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v46 = llvm.add %v45, %c0 : i32
    %v47 = llvm.and %v46, %c262143 : i32
    %v48 = llvm.lshr %v47, %c4 : i32
    %v49 = llvm.zext %v48 : i32 to i64
    %d50 = llvm.add %v49, %c4611686293305294848_i64 : i64
    %v51 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v52 = llvm.add %v51, %c8192 : i32
    %v53 = llvm.and %v52, %c262143 : i32
    %v54 = llvm.lshr %v53, %c4 : i32
    %v55 = llvm.zext %v54 : i32 to i64
    %d56 = llvm.add %v55, %c4611686293305294848_i64 : i64
    %w57:4 = tile.wgmma 8 bf16 lhs_descriptor %d50 rhs_descriptor %d56 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w58:4 = tile.wgmma_wait 0(%w57#0, %w57#1, %w57#2, %w57#3) : f32, f32, f32, f32
    %v59 = llvm.fadd %w58#0, %w58#1 : f32
    %v60 = llvm.fadd %v59, %w58#2 : f32
    %v61 = llvm.fadd %v60, %w58#3 : f32
    %v62 = llvm.mul %block2, %c128 : i32
    %v63 = llvm.add %v62, %tid1 : i32
    %p64 = llvm.getelementptr %out[%v63] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v61, %p64 : f32, !llvm.ptr<1>
    llvm.return
  }
}
