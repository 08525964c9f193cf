// The lower lanes keep a transposed matrix.
// wrong: the upper lanes have returned before.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %po : i32, !llvm.ptr<1>
    %x = tile.move_matrix %tid //- wrong
    %islow = llvm.icmp "ult" %lane, %c16 : i32
    llvm.cond_br %islow, ^go, ^gone
  ^gone:
    llvm.return
  ^go:
    //+ wrong: %x = tile.move_matrix %tid
    llvm.store %x, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
