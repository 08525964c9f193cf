// All blocks count atomically.
// wrong: block 0 clears the counter with a plain store first.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %slot = llvm.mlir.constant(0 : i32) : i32
    %pa = llvm.getelementptr %table[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %old = llvm.atomicrmw add %pa, %c1 monotonic : !llvm.ptr<1>, i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %c1, %po : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %both = llvm.or %block, %tid : i32
    %isfirst = llvm.icmp "eq" %both, %c0 : i32
    llvm.cond_br %isfirst, ^plain, ^join
  ^plain:
    %zero = llvm.mlir.constant(0 : i32) : i32
    %pz = llvm.getelementptr %table[%zero] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %zero, %pz : i32, !llvm.ptr<1>
    llvm.br ^join
  ^join:
    nvvm.barrier
    %slot = llvm.mlir.constant(0 : i32) : i32
    %pa = llvm.getelementptr %table[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %old = llvm.atomicrmw add %pa, %c1 monotonic : !llvm.ptr<1>, i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %c1, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
