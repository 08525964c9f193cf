// The thread that issues a copy on an mbarrier made by another thread fences for the async proxy.
// wrong: a third thread fences.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %row = llvm.mul %block, %c8 : i32
    llvm.cond_br %first, ^init, ^ready
  ^init:
    nvvm.mbarrier.init %smem, %c1 : !llvm.ptr<3>, i32
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %second = llvm.icmp "eq" %tid, %c32 : i32
    //+ wrong: %third = llvm.icmp "eq" %tid, %c16 : i32
    //+ wrong: llvm.cond_br %third, ^elsewhere, ^choose
  //+ wrong: ^elsewhere:
    //+ wrong: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    //+ wrong: llvm.br ^choose
  //+ wrong: ^choose:
    llvm.cond_br %second, ^issue, ^wait
  ^issue:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>} //- wrong
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
    %value = llvm.load %from : !llvm.ptr<3> -> i32
    %base = llvm.mul %block, %c64 : i32
    %slot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %value, %to : i32, !llvm.ptr<1>
    llvm.return
  }
}
