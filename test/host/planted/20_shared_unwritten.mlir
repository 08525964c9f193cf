// Reads written memory.
// wrong1: reads an unwritten word. wrong2: reads past the block's shared memory.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c32 = llvm.mlir.constant(32 : i32) : i32 //- wrong1, wrong2
    //+ wrong1: %c1 = llvm.mlir.constant(1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %ps = llvm.getelementptr %smem[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %tid, %ps : i32, !llvm.ptr<3>
    nvvm.barrier
    %other = llvm.xor %tid, %c32 : i32 //- wrong1, wrong2
    //+ wrong1: %other = llvm.add %tid, %c1 : i32
    //+ wrong2: %k = llvm.mlir.constant(2048 : i32) : i32
    //+ wrong2: %other = llvm.add %tid, %k : i32
    %pl = llvm.getelementptr %smem[%other] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    %v = llvm.load %pl : !llvm.ptr<3> -> i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
