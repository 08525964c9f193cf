// A thread reads its own write back.
// wrong: through the non-coherent path, which may not see it.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %po : i32, !llvm.ptr<1>
    nvvm.barrier
    %q = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %v = llvm.load %q : !llvm.ptr<1> -> i32 //- wrong
    //+ wrong: %v = llvm.load %q invariant : !llvm.ptr<1> -> i32
    %v2 = llvm.add %v, %c1 : i32
    llvm.store %v2, %q : i32, !llvm.ptr<1>
    llvm.return
  }
}
