// Kernels that may begin before the launch in front of them has ended.
gpu.module @overlap {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @waits(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    nvvm.griddepcontrol wait
    %value = llvm.load %there : !llvm.ptr<1> -> i32
    llvm.store %value, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @lets(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    nvvm.griddepcontrol launch_dependents
    %value = llvm.load %there : !llvm.ptr<1> -> i32
    llvm.store %value, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @reads_early(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %value = llvm.load %there : !llvm.ptr<1> -> i32
    nvvm.griddepcontrol wait
    llvm.store %value, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @one_waits(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %first = llvm.icmp "eq" %tid, %c0 : i32
    llvm.cond_br %first, ^wait, ^on
  ^wait:
    nvvm.griddepcontrol wait
    llvm.br ^on
  ^on:
    nvvm.barrier
    %value = llvm.load %there : !llvm.ptr<1> -> i32
    llvm.store %value, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @one_waits_alone(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %first = llvm.icmp "eq" %tid, %c0 : i32
    llvm.cond_br %first, ^wait, ^on
  ^wait:
    nvvm.griddepcontrol wait
    llvm.br ^on
  ^on:
    %value = llvm.load %there : !llvm.ptr<1> -> i32
    llvm.store %value, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @never_waits(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %here : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @copies_early(%from: !llvm.ptr<1>, %to: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %c32 = llvm.mlir.constant(32 : i32) : i32
    %c64 = llvm.mlir.constant(64 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %base = llvm.mul %block, %c64 : i32
    %mine = llvm.add %base, %tid : i32
    %other = llvm.xor %mine, %c32 : i32
    %there = llvm.getelementptr %from[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %here = llvm.getelementptr %to[%mine] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid, %here : i32, !llvm.ptr<1>
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %place = llvm.getelementptr %smem[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    nvvm.cp.async.shared.global %place, %there, 4, cache = ca : !llvm.ptr<3>, !llvm.ptr<1>
    nvvm.cp.async.commit.group
    nvvm.griddepcontrol wait
    nvvm.cp.async.wait.group 0
    llvm.return
  }
}
