// Threads write and read a tile, then a copy overwrites it through another proxy. Reads need no fence.
// wrong1: no proxy fence. wrong2: the fence comes before the stores. wrong3: no barrier between reads and copy.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c512 = llvm.mlir.constant(512 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
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
    %mine = llvm.mul %tid, %c16 : i32
    %here = llvm.add %mine, %c1024 : i32
    %mp = llvm.getelementptr %smem[%here] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    //+ wrong2: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    llvm.store %tid, %mp : i32, !llvm.ptr<3>
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>} //- wrong1, wrong2
    nvvm.barrier
    %other = llvm.xor %here, %c512 : i32
    %op = llvm.getelementptr %smem[%other] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %old = llvm.load %op : !llvm.ptr<3> -> i32
    nvvm.barrier //- wrong3
    llvm.cond_br %first, ^issue, ^wait
  ^issue:
    nvvm.mbarrier.arrive.expect_tx %smem, %c1024 : !llvm.ptr<3>, i32
    %tile = llvm.getelementptr %smem[%c1024] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %tile7 = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %tile7, %map, %smem, box[%c0, %row] : !llvm.ptr<7>, !llvm.ptr
    llvm.br ^wait
  ^wait:
    nvvm.mbarrier.try_wait.parity %smem, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %offset = llvm.mul %tid, %c16 : i32
    %at = llvm.add %offset, %c1024 : i32
    %from = llvm.getelementptr %smem[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %new = llvm.load %from : !llvm.ptr<3> -> i32
    %value = llvm.xor %new, %old : i32
    %base = llvm.mul %block, %c64 : i32
    %slot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %value, %to : i32, !llvm.ptr<1>
    llvm.return
  }
}
