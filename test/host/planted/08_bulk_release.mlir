// Four warps multiply boxes that one thread copies, round after round, into one stage. No proxy fence is needed.
// wrong1: one warp has not waited for the copy. wrong2: they release the stage before the wait for the product that
// reads it.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c4611686293305294848_i64 = llvm.mlir.constant(4611686293305294848 : i64) : i64
    %c9216 = llvm.mlir.constant(9216 : i32) : i32
    %c128 = llvm.mlir.constant(128 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %c160 = llvm.mlir.constant(160 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %warp = llvm.lshr %tid, %c5 : i32
    %lane = llvm.and %tid, %c31 : i32
    %empty = llvm.getelementptr %smem[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %tile = llvm.getelementptr %smem[%c1024] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.cond_br %first, ^init, ^ready
  ^init:
    nvvm.mbarrier.init %smem, %c1 : !llvm.ptr<3>, i32
    nvvm.mbarrier.init %empty, %c4 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    %window = llvm.ptrtoint %smem : !llvm.ptr<3> to i32
    %a0 = llvm.add %window, %c1024 : i32
    %a1 = llvm.lshr %a0, %c4 : i32
    %a2 = llvm.zext %a1 : i32 to i64
    %a = llvm.add %a2, %c4611686293305294848_i64 : i64
    %b0 = llvm.add %window, %c9216 : i32
    %b1 = llvm.lshr %b0, %c4 : i32
    %b2 = llvm.zext %b1 : i32 to i64
    %b = llvm.add %b2, %c4611686293305294848_i64 : i64
    %none = llvm.mlir.constant(0.0 : f32) : f32
    %math = llvm.icmp "ult" %warp, %c4 : i32
    llvm.cond_br %math, ^consume(%c0, %none : i32, f32), ^choose
  ^choose:
    %producer = llvm.icmp "eq" %tid, %c128 : i32
    llvm.cond_br %producer, ^produce(%c0 : i32), ^done(%none : f32)
  ^produce(%i: i32):
    %flip = llvm.xor %i, %c1 : i32
    %parity = llvm.and %flip, %c1 : i32
    nvvm.mbarrier.try_wait.parity %empty, %parity, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.mbarrier.arrive.expect_tx %smem, %c9216 : !llvm.ptr<3>, i32
    %row = llvm.mul %i, %c8 : i32
    %cluster = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %cluster, %map, %smem, box[%c0, %row] : !llvm.ptr<7>, !llvm.ptr
    %next = llvm.add %i, %c1 : i32
    %more = llvm.icmp "ult" %next, %c3 : i32
    llvm.cond_br %more, ^produce(%next : i32), ^done(%none : f32)
  ^consume(%j: i32, %sum: f32):
    %phase = llvm.and %j, %c1 : i32
    //+ wrong1: %third = llvm.icmp "eq" %warp, %c3 : i32
    //+ wrong1: llvm.cond_br %third, ^multiply, ^ask
  //+ wrong1: ^ask:
    nvvm.mbarrier.try_wait.parity %smem, %phase, %c1000 : !llvm.ptr<3>, i32, i32
    //+ wrong1: llvm.br ^multiply
  //+ wrong1: ^multiply:
    //+ wrong1: nvvm.bar.warp.sync %cm1 : i32
    nvvm.wgmma.fence.aligned
    %d:4 = tile.wgmma 8 bf16 lhs_descriptor %a rhs_descriptor %b : f32, f32, f32, f32
    nvvm.wgmma.commit.group.sync.aligned
    %r:4 = tile.wgmma_wait 0(%d#0, %d#1, %d#2, %d#3) : f32, f32, f32, f32 //- wrong2
    nvvm.bar.warp.sync %cm1 : i32
    %lead = llvm.icmp "eq" %lane, %c0 : i32
    llvm.cond_br %lead, ^release, ^released
  ^release:
    %state = nvvm.mbarrier.arrive %empty : !llvm.ptr<3> -> i64
    llvm.br ^released
  ^released:
    //+ wrong2: %r:4 = tile.wgmma_wait 0(%d#0, %d#1, %d#2, %d#3) : f32, f32, f32, f32
    %s1 = llvm.fadd %r#0, %r#1 : f32
    %s2 = llvm.fadd %r#2, %r#3 : f32
    %s3 = llvm.fadd %s1, %s2 : f32
    %s = llvm.fadd %s3, %sum : f32
    %jn = llvm.add %j, %c1 : i32
    %jm = llvm.icmp "ult" %jn, %c3 : i32
    llvm.cond_br %jm, ^consume(%jn, %s : i32, f32), ^done(%s : f32)
  ^done(%result: f32):
    %base = llvm.mul %block, %c160 : i32
    %slot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %result, %to : f32, !llvm.ptr<1>
    llvm.return
  }
}
