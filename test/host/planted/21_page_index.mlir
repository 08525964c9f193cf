// A gather through a page table; pages that no sequence owns hold NaN.
// wrong1: off by one page: a page of the pool, so only the numbers tell. wrong2: past the pool.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %page = llvm.udiv %tid, %c16 : i32
    %slot = llvm.urem %tid, %c16 : i32
    %pt = llvm.getelementptr %table[%page] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %index0 = llvm.load %pt : !llvm.ptr<1> -> i32
    %delta = llvm.mlir.constant(0 : i32) : i32 //- wrong1, wrong2
    //+ wrong1: %delta = llvm.mlir.constant(1 : i32) : i32
    //+ wrong2: %delta = llvm.mlir.constant(6 : i32) : i32
    %index = llvm.add %index0, %delta : i32
    %base = llvm.mul %index, %c16 : i32
    %at = llvm.add %base, %slot : i32
    %pq = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %f = llvm.load %pq : !llvm.ptr<1> -> f32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %f, %po : f32, !llvm.ptr<1>
    llvm.return
  }
}
