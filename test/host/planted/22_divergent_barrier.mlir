// All threads reach the barrier.
// wrong1: half of each warp skips it and waits at another operation. wrong2: a warp never comes.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    nvvm.barrier
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %po : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong1(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %all = llvm.mlir.constant(-1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %islow = llvm.icmp "ult" %lane, %c16 : i32
    llvm.cond_br %islow, ^go, ^join
  ^go:
    nvvm.barrier
    llvm.br ^join
  ^join:
    nvvm.bar.warp.sync %all : i32
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %po : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong2(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c2 = llvm.mlir.constant(2 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %isw = llvm.icmp "ult" %tid, %c32 : i32
    llvm.cond_br %isw, ^go, ^wait
  ^go:
    nvvm.barrier id = %c1 number_of_threads = %c64
    llvm.br ^join
  ^wait:
    nvvm.barrier id = %c2 number_of_threads = %c64
    llvm.br ^join
  ^join:
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
