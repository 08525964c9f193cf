// The upper lanes have returned.
// wrong: a shuffle still reads them.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c1 = llvm.mlir.constant(1 : i32) : i32 //- wrong
    %all = llvm.mlir.constant(-1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %pi = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %pi : i32, !llvm.ptr<1>
    %islow = llvm.icmp "ult" %lane, %c16 : i32
    llvm.cond_br %islow, ^go, ^gone
  ^gone:
    llvm.return
  ^go:
    %x = nvvm.shfl.sync bfly %all, %tid, %c1, %c31 : i32 -> i32 //- wrong
    //+ wrong: %x = nvvm.shfl.sync bfly %all, %tid, %c16, %c31 : i32 -> i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %x, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
