// A ring of two stages: one thread copies boxes, another warp reads them, mbarriers pass the stages back and forth.
// wrong1: the reader's parity does not flip on the wrap. wrong2: the producer uses the ring as if it had one more
// stage.
// wrong3: the reader releases a stage before it has read. wrong4: the releasing lane has not converged with the others.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c72 = llvm.mlir.constant(72 : i32) : i32
    //+ wrong2: %c2 = llvm.mlir.constant(2 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    //+ wrong3: %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c3 = llvm.mlir.constant(3 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32 //- wrong3, wrong4
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %warp = llvm.lshr %tid, %c5 : i32
    %lane = llvm.and %tid, %c31 : i32
    llvm.cond_br %first, ^init, ^ready
  ^init:
    %b0 = llvm.getelementptr %smem[%c0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %b0, %c1 : !llvm.ptr<3>, i32
    %b1 = llvm.getelementptr %smem[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %b1, %c1 : !llvm.ptr<3>, i32
    %b2 = llvm.getelementptr %smem[%c64] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %b2, %c1 : !llvm.ptr<3>, i32
    %b3 = llvm.getelementptr %smem[%c72] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.init %b3, %c1 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    %reader = llvm.icmp "eq" %warp, %c1 : i32
    llvm.cond_br %reader, ^consume(%c0, %c0 : i32, i32), ^choose
  ^choose:
    llvm.cond_br %first, ^produce(%c0 : i32), ^done(%c0 : i32)
  ^produce(%i: i32):
    %slot = llvm.and %i, %c1 : i32
    %turn = llvm.lshr %i, %c1 : i32
    %flip = llvm.xor %turn, %c1 : i32
    %parity = llvm.and %flip, %c1 : i32
    %fo = llvm.mul %slot, %c8 : i32
    %full = llvm.getelementptr %smem[%fo] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %eo = llvm.add %fo, %c64 : i32
    %empty = llvm.getelementptr %smem[%eo] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong2: %late = llvm.icmp "ugt" %i, %c2 : i32
    //+ wrong2: llvm.cond_br %late, ^claim, ^free
  //+ wrong2: ^claim:
    nvvm.mbarrier.try_wait.parity %empty, %parity, %c1000 : !llvm.ptr<3>, i32, i32
    //+ wrong2: llvm.br ^free
  //+ wrong2: ^free:
    nvvm.mbarrier.arrive.expect_tx %full, %c1024 : !llvm.ptr<3>, i32
    %so = llvm.mul %slot, %c1024 : i32
    %to1 = llvm.add %so, %c1024 : i32
    %tile = llvm.getelementptr %smem[%to1] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %row = llvm.mul %i, %c4 : i32
    %tile7 = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %tile7, %map, %full, box[%c0, %row] : !llvm.ptr<7>, !llvm.ptr
    %next = llvm.add %i, %c1 : i32
    %more = llvm.icmp "ult" %next, %c5 : i32
    llvm.cond_br %more, ^produce(%next : i32), ^done(%c0 : i32)
  ^consume(%j: i32, %sum: i32):
    %cslot = llvm.and %j, %c1 : i32
    %cturn = llvm.lshr %j, %c1 : i32
    %phase = llvm.and %cturn, %c1 : i32
    %cfo = llvm.mul %cslot, %c8 : i32
    %cfull = llvm.getelementptr %smem[%cfo] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %ceo = llvm.add %cfo, %c64 : i32
    %cempty = llvm.getelementptr %smem[%ceo] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.mbarrier.try_wait.parity %cfull, %phase, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong1
    //+ wrong1: nvvm.mbarrier.try_wait.parity %cfull, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    //+ wrong3: nvvm.bar.warp.sync %cm1 : i32
    //+ wrong3: %lead = llvm.icmp "eq" %lane, %c0 : i32
    //+ wrong3: llvm.cond_br %lead, ^release, ^released
  //+ wrong3: ^release:
    //+ wrong3: %state = nvvm.mbarrier.arrive %cempty : !llvm.ptr<3> -> i64
    //+ wrong3: llvm.br ^released
  //+ wrong3: ^released:
    %cso = llvm.mul %cslot, %c1024 : i32
    %lo = llvm.mul %lane, %c32 : i32
    %k1 = llvm.add %cso, %c1024 : i32
    %k2 = llvm.add %k1, %lo : i32
    %from = llvm.getelementptr %smem[%k2] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v = llvm.load %from : !llvm.ptr<3> -> i32
    %s3 = llvm.mul %sum, %c3 : i32
    %s = llvm.xor %s3, %v : i32
    nvvm.bar.warp.sync %cm1 : i32 //- wrong3, wrong4
    %lead = llvm.icmp "eq" %lane, %c0 : i32 //- wrong3
    llvm.cond_br %lead, ^release, ^released //- wrong3
  ^release: //- wrong3
    %state = nvvm.mbarrier.arrive %cempty : !llvm.ptr<3> -> i64 //- wrong3
    llvm.br ^released //- wrong3
  ^released: //- wrong3
    %jn = llvm.add %j, %c1 : i32
    %jm = llvm.icmp "ult" %jn, %c5 : i32
    llvm.cond_br %jm, ^consume(%jn, %s : i32, i32), ^done(%s : i32)
  ^done(%result: i32):
    %base = llvm.mul %block, %c64 : i32
    %oslot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%oslot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %result, %to : i32, !llvm.ptr<1>
    llvm.return
  }
}
