// All threads wait for the phase of the copy, then read.
// wrong1: no thread waits. wrong2: one warp waits, both read. wrong3: no thread waits or reads. wrong4: a thread writes
// into the box before it has waited. wrong5: after a second copy they wait for the first one again.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    //+ wrong2: %c32 = llvm.mlir.constant(32 : i32) : i32
    //+ wrong4: %c5 = llvm.mlir.constant(5 : i32) : i32
    //+ wrong4: %c1104 = llvm.mlir.constant(1104 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32 //- wrong1, wrong3
    //+ wrong5: %c2048 = llvm.mlir.constant(2048 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32 //- wrong3
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %row = llvm.mul %block, %c8 : i32
    llvm.cond_br %first, ^init, ^ready
  ^init:
    nvvm.mbarrier.init %smem, %c1 : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    llvm.cond_br %first, ^issue, ^wait
  ^issue:
    nvvm.mbarrier.arrive.expect_tx %smem, %c1024 : !llvm.ptr<3>, i32
    %tile = llvm.getelementptr %smem[%c1024] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %tile7 = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %tile7, %map, %smem, box[%c0, %row] : !llvm.ptr<7>, !llvm.ptr
    llvm.br ^wait
  ^wait:
    //+ wrong2: %low = llvm.icmp "ult" %tid, %c32 : i32
    //+ wrong2: llvm.cond_br %low, ^some, ^read
  //+ wrong2: ^some:
    //+ wrong4: nvvm.barrier
    //+ wrong4: %five = llvm.icmp "eq" %tid, %c5 : i32
    //+ wrong4: llvm.cond_br %five, ^write, ^go
  //+ wrong4: ^write:
    //+ wrong4: %cell = llvm.getelementptr %smem[%c1104] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong4: llvm.store %tid, %cell : i32, !llvm.ptr<3>
    //+ wrong4: llvm.br ^go
  //+ wrong4: ^go:
    nvvm.mbarrier.try_wait.parity %smem, %c0, %c1000 : !llvm.ptr<3>, i32, i32 //- wrong1, wrong3
    //+ wrong1: nvvm.barrier
    //+ wrong2: llvm.br ^read
  //+ wrong2: ^read:
    //+ wrong5: nvvm.barrier
    //+ wrong5: llvm.cond_br %first, ^again, ^both
  //+ wrong5: ^again:
    //+ wrong5: nvvm.mbarrier.arrive.expect_tx %smem, %c1024 : !llvm.ptr<3>, i32
    //+ wrong5: %second = llvm.getelementptr %smem[%c2048] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong5: %second7 = llvm.addrspacecast %second : !llvm.ptr<3> to !llvm.ptr<7>
    //+ wrong5: nvvm.cp.async.bulk.tensor.shared.cluster.global %second7, %map, %smem, box[%c0, %row] : !llvm.ptr<7>, !llvm.ptr
    //+ wrong5: llvm.br ^both
  //+ wrong5: ^both:
    //+ wrong5: nvvm.barrier
    //+ wrong5: nvvm.mbarrier.try_wait.parity %smem, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %offset = llvm.mul %tid, %c16 : i32 //- wrong3
    %at = llvm.add %offset, %c1024 : i32 //- wrong3
    %from = llvm.getelementptr %smem[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 //- wrong3
    %value = llvm.load %from : !llvm.ptr<3> -> i32 //- wrong3
    %base = llvm.mul %block, %c64 : i32
    %slot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %value, %to : i32, !llvm.ptr<1> //- wrong3
    //+ wrong3: llvm.store %tid, %to : i32, !llvm.ptr<1>
    llvm.return
  }
}
