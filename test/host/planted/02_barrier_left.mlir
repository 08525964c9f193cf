// One warp arrives at a named barrier without waiting; the other warp waits there.
// wrong: no warp waits, and the block ends with the barrier half complete.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %id = llvm.add %c1, %c0 : i32
    %threads = llvm.mlir.constant(64 : i32) : i32
    %ps = llvm.getelementptr %smem[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %tid, %ps : i32, !llvm.ptr<3>
    nvvm.barrier id = %id number_of_threads = %threads
    %id2 = llvm.add %id, %c1 : i32
    %warp1 = llvm.icmp "uge" %tid, %c32 : i32
    llvm.cond_br %warp1, ^second, ^first
  ^first:
    nvvm.barrier.arrive id = %id2 number_of_threads = %threads
    llvm.br ^both
  ^second:
    nvvm.barrier id = %id2 number_of_threads = %threads //- wrong
    llvm.br ^both
  ^both:
    %other = llvm.xor %tid, %c32 : i32
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
