// A kernel reads the result of its own bulk store, after a wait for its reads and one for its writes.
// wrong1: only the wait for reads. wrong2: the other threads do not wait for the waiting thread.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}, %outMap: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1024 = llvm.mlir.constant(1024 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %tile = llvm.getelementptr %smem[%c1024] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %row = llvm.mul %block, %c2 : i32
    %base = llvm.mul %block, %c64 : i32
    %slot = llvm.add %base, %tid : i32
    %offset = llvm.mul %tid, %c4 : i32
    %mine = llvm.getelementptr %tile[%offset] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %slot, %mine : i32, !llvm.ptr<3>
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    llvm.cond_br %first, ^send, ^sendDone
  ^send:
    nvvm.cp.async.bulk.tensor.global.shared.cta %outMap, %tile, box[%c0, %row] : !llvm.ptr, !llvm.ptr<3>
    nvvm.cp.async.bulk.commit.group
    nvvm.cp.async.bulk.wait_group 0 {read}
    nvvm.cp.async.bulk.wait_group 0 //- wrong1
    llvm.br ^sendDone
  ^sendDone:
    nvvm.barrier //- wrong2
    %at = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %value = llvm.load %at : !llvm.ptr<1> -> i32
    %more = llvm.add %value, %c1 : i32
    llvm.store %more, %at : i32, !llvm.ptr<1>
    llvm.return
  }
}
