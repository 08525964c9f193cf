// The readers may also fence, after they have observed the writes; one lane of a warp may fence for all that converge.
// wrong: copies that were waited for are generic writes, too; no thread fences.
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
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
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
    %v10 = llvm.add %v7, %c0 : i32
    %p11 = llvm.getelementptr %smem3[%v10] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p11, %p9, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v12 = llvm.add %tid1, %c128 : i32
    %v13 = llvm.mul %v12, %c16 : i32
    %v14 = llvm.add %v13, %c0 : i32
    %p15 = llvm.getelementptr %in[%v14] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v16 = llvm.add %v13, %c0 : i32
    %p17 = llvm.getelementptr %smem3[%v16] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p17, %p15, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v18 = llvm.add %tid1, %c256 : i32
    %v19 = llvm.mul %v18, %c16 : i32
    %v20 = llvm.add %v19, %c0 : i32
    %p21 = llvm.getelementptr %in[%v20] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v22 = llvm.add %v19, %c0 : i32
    %p23 = llvm.getelementptr %smem3[%v22] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p23, %p21, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v24 = llvm.add %tid1, %c384 : i32
    %v25 = llvm.mul %v24, %c16 : i32
    %v26 = llvm.add %v25, %c0 : i32
    %p27 = llvm.getelementptr %in[%v26] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v28 = llvm.add %v25, %c0 : i32
    %p29 = llvm.getelementptr %smem3[%v28] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p29, %p27, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v30 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v30, ^then30, ^join30
  ^then30:
    %v32 = llvm.add %tid1, %c0 : i32
    %v33 = llvm.mul %v32, %c16 : i32
    %v34 = llvm.add %v33, %c8192 : i32
    %p35 = llvm.getelementptr %in[%v34] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v36 = llvm.add %v33, %c8192 : i32
    %p37 = llvm.getelementptr %smem3[%v36] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p37, %p35, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    llvm.br ^join30
  ^join30:
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    nvvm.barrier
    %v38 = llvm.icmp "eq" %v5, %c5 : i32
    llvm.cond_br %v38, ^then38, ^join38
  ^then38:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    llvm.br ^join38
  ^join38:
    nvvm.bar.warp.sync %cm1 : i32
    nvvm.wgmma.fence.aligned
    %v40 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v41 = llvm.add %v40, %c0 : i32
    %v42 = llvm.and %v41, %c262143 : i32
    %v43 = llvm.lshr %v42, %c4 : i32
    %v44 = llvm.zext %v43 : i32 to i64
    %d45 = llvm.add %v44, %c4611686293305294848_i64 : i64
    %v46 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v47 = llvm.add %v46, %c8192 : i32
    %v48 = llvm.and %v47, %c262143 : i32
    %v49 = llvm.lshr %v48, %c4 : i32
    %v50 = llvm.zext %v49 : i32 to i64
    %d51 = llvm.add %v50, %c4611686293305294848_i64 : i64
    %w52:4 = tile.wgmma 8 bf16 lhs_descriptor %d45 rhs_descriptor %d51 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w53:4 = tile.wgmma_wait 0(%w52#0, %w52#1, %w52#2, %w52#3) : f32, f32, f32, f32
    %v54 = llvm.fadd %w53#0, %w53#1 : f32
    %v55 = llvm.fadd %v54, %w53#2 : f32
    %v56 = llvm.fadd %v55, %w53#3 : f32
    %v57 = llvm.mul %block2, %c128 : i32
    %v58 = llvm.add %v57, %tid1 : i32
    %p59 = llvm.getelementptr %out[%v58] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v56, %p59 : f32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
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
    %v10 = llvm.add %v7, %c0 : i32
    %p11 = llvm.getelementptr %smem3[%v10] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p11, %p9, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v12 = llvm.add %tid1, %c128 : i32
    %v13 = llvm.mul %v12, %c16 : i32
    %v14 = llvm.add %v13, %c0 : i32
    %p15 = llvm.getelementptr %in[%v14] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v16 = llvm.add %v13, %c0 : i32
    %p17 = llvm.getelementptr %smem3[%v16] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p17, %p15, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v18 = llvm.add %tid1, %c256 : i32
    %v19 = llvm.mul %v18, %c16 : i32
    %v20 = llvm.add %v19, %c0 : i32
    %p21 = llvm.getelementptr %in[%v20] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v22 = llvm.add %v19, %c0 : i32
    %p23 = llvm.getelementptr %smem3[%v22] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p23, %p21, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v24 = llvm.add %tid1, %c384 : i32
    %v25 = llvm.mul %v24, %c16 : i32
    %v26 = llvm.add %v25, %c0 : i32
    %p27 = llvm.getelementptr %in[%v26] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v28 = llvm.add %v25, %c0 : i32
    %p29 = llvm.getelementptr %smem3[%v28] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p29, %p27, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %v30 = llvm.icmp "ult" %tid1, %c64 : i32
    llvm.cond_br %v30, ^then30, ^join30
  ^then30:
    %v32 = llvm.add %tid1, %c0 : i32
    %v33 = llvm.mul %v32, %c16 : i32
    %v34 = llvm.add %v33, %c8192 : i32
    %p35 = llvm.getelementptr %in[%v34] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v36 = llvm.add %v33, %c8192 : i32
    %p37 = llvm.getelementptr %smem3[%v36] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %p37, %p35, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    llvm.br ^join30
  ^join30:
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    nvvm.barrier
    nvvm.wgmma.fence.aligned
    %v38 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v39 = llvm.add %v38, %c0 : i32
    %v40 = llvm.and %v39, %c262143 : i32
    %v41 = llvm.lshr %v40, %c4 : i32
    %v42 = llvm.zext %v41 : i32 to i64
    %d43 = llvm.add %v42, %c4611686293305294848_i64 : i64
    %v44 = llvm.ptrtoint %smem3 : !llvm.ptr<3> to i32
    %v45 = llvm.add %v44, %c8192 : i32
    %v46 = llvm.and %v45, %c262143 : i32
    %v47 = llvm.lshr %v46, %c4 : i32
    %v48 = llvm.zext %v47 : i32 to i64
    %d49 = llvm.add %v48, %c4611686293305294848_i64 : i64
    %w50:4 = tile.wgmma 8 bf16 lhs_descriptor %d43 rhs_descriptor %d49 : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %w51:4 = tile.wgmma_wait 0(%w50#0, %w50#1, %w50#2, %w50#3) : f32, f32, f32, f32
    %v52 = llvm.fadd %w51#0, %w51#1 : f32
    %v53 = llvm.fadd %v52, %w51#2 : f32
    %v54 = llvm.fadd %v53, %w51#3 : f32
    %v55 = llvm.mul %block2, %c128 : i32
    %v56 = llvm.add %v55, %tid1 : i32
    %p57 = llvm.getelementptr %out[%v56] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v54, %p57 : f32, !llvm.ptr<1>
    llvm.return
  }
}
