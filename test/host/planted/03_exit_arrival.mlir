// Threads also wait for their own copies that arrive on an mbarrier, before they end.
// wrong1: they do not wait. wrong2: the wait covers nothing, since the copies are in no group.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %first = llvm.icmp "eq" %tid, %c0 : i32
    llvm.cond_br %first, ^init, ^ready
  ^init:
    nvvm.mbarrier.init %smem, %c32 : !llvm.ptr<3>, i32
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    %base = llvm.mul %block, %c64 : i32
    %producer = llvm.icmp "ult" %tid, %c32 : i32
    llvm.cond_br %producer, ^produce, ^consume
  ^produce:
    %offset = llvm.mul %tid, %c16 : i32
    %from = llvm.getelementptr %in[%offset] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %place = llvm.add %offset, %c1024 : i32
    %to = llvm.getelementptr %smem[%place] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    nvvm.cp.async.shared.global %to, %from, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    nvvm.cp.async.mbarrier.arrive %smem {noinc = true} : !llvm.ptr<3>
    nvvm.cp.async.commit.group //- wrong1, wrong2
    nvvm.cp.async.wait.group 0 //- wrong1
    %mine = llvm.add %base, %tid : i32
    %idle = llvm.getelementptr %out[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %idle : i32, !llvm.ptr<1>
    llvm.return
  ^consume:
    nvvm.mbarrier.try_wait.parity %smem, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %lane = llvm.sub %tid, %c32 : i32
    %line = llvm.mul %lane, %c16 : i32
    %start = llvm.add %line, %c1024 : i32
    %there = llvm.getelementptr %smem[%start] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %value = llvm.load %there : !llvm.ptr<3> -> i32
    %theirs = llvm.add %base, %tid : i32
    %result = llvm.getelementptr %out[%theirs] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %value, %result : i32, !llvm.ptr<1>
    llvm.return
  }
}
