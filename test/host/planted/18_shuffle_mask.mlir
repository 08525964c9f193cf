// Half a warp exchanges values.
// wrong1: it reads lanes that do not take part. wrong2: the mask names lanes that never come: deadlock.
// wrong3: a lane shuffles although its mask does not name it.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c1 = llvm.mlir.constant(1 : i32) : i32 //- wrong1
    //+ wrong2: %all = llvm.mlir.constant(-1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %low = llvm.mlir.constant(65535 : i32) : i32 //- wrong2, wrong3
    //+ wrong3: %low = llvm.mlir.constant(65534 : i32) : i32
    %islow = llvm.icmp "ult" %lane, %c16 : i32
    llvm.cond_br %islow, ^go, ^skip
  ^go:
    %x = nvvm.shfl.sync bfly %low, %tid, %c1, %c31 : i32 -> i32 //- wrong1, wrong2
    //+ wrong1: %x = nvvm.shfl.sync bfly %low, %tid, %c16, %c31 : i32 -> i32
    //+ wrong2: %x = nvvm.shfl.sync bfly %all, %tid, %c1, %c31 : i32 -> i32
    llvm.br ^join(%x : i32)
  ^skip:
    llvm.br ^join(%lane : i32)
  ^join(%v: i32):
    //+ wrong2: nvvm.barrier
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
