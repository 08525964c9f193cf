// All lanes of a warp wait for a phase before one of them releases the next. They may converge at any operation, since
// no memory is read after the wait.
// wrong: the lane releases it for itself only, and a lane that comes late finds the phase after the next.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c1 = llvm.mlir.constant(1 : i32) : i32
    %c8 = llvm.mlir.constant(8 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %c1000 = llvm.mlir.constant(1000 : i32) : i32
    %cm1 = llvm.mlir.constant(-1 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %full = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %empty = llvm.getelementptr %full[%c8] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %first = llvm.icmp "eq" %tid, %c0 : i32
    %elected = llvm.icmp "eq" %tid, %c32 : i32
    %producer = llvm.icmp "ult" %tid, %c32 : i32
    llvm.cond_br %first, ^init, ^ready
  ^init:
    nvvm.mbarrier.init %full, %c1 : !llvm.ptr<3>, i32
    nvvm.mbarrier.init %empty, %c1 : !llvm.ptr<3>, i32
    llvm.br ^ready
  ^ready:
    nvvm.barrier
    llvm.cond_br %producer, ^choose, ^consume0
  ^choose:
    llvm.cond_br %first, ^produce, ^end
  ^produce:
    nvvm.mbarrier.try_wait.parity %empty, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %s0 = nvvm.mbarrier.arrive %full : !llvm.ptr<3> -> i64
    nvvm.mbarrier.try_wait.parity %empty, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    %s1 = nvvm.mbarrier.arrive %full : !llvm.ptr<3> -> i64
    nvvm.mbarrier.try_wait.parity %empty, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %s2 = nvvm.mbarrier.arrive %full : !llvm.ptr<3> -> i64
    llvm.br ^end
  ^consume0:
    nvvm.mbarrier.try_wait.parity %full, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.bar.warp.sync %cm1 : i32 //- wrong
    llvm.cond_br %elected, ^release0, ^consume1
  ^release0:
    %e0 = nvvm.mbarrier.arrive %empty : !llvm.ptr<3> -> i64
    llvm.br ^consume1
  ^consume1:
    nvvm.mbarrier.try_wait.parity %full, %c1, %c1000 : !llvm.ptr<3>, i32, i32
    %met = nvvm.shfl.sync bfly %cm1, %tid, %c1, %c31 : i32 -> i32 //- wrong
    llvm.cond_br %elected, ^release1, ^consume2
  ^release1:
    %e1 = nvvm.mbarrier.arrive %empty : !llvm.ptr<3> -> i64
    llvm.br ^consume2
  ^consume2:
    nvvm.mbarrier.try_wait.parity %full, %c0, %c1000 : !llvm.ptr<3>, i32, i32
    nvvm.bar.warp.sync %cm1 : i32 //- wrong
    llvm.cond_br %elected, ^release2, ^end
  ^release2:
    %e2 = nvvm.mbarrier.arrive %empty : !llvm.ptr<3> -> i64
    llvm.br ^end
  ^end:
    %base = llvm.mul %block, %c64 : i32
    %slot = llvm.add %base, %tid : i32
    %to = llvm.getelementptr %out[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %to : i32, !llvm.ptr<1>
    llvm.return
  }
}
