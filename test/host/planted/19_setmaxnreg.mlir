// Three warpgroups share the registers allocated at launch, 168 for each thread.
// wrong1: the sum exceeds the allocation. wrong2: a decrease to more than before. wrong3: one warp of a warpgroup skips
// it.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c384 = llvm.mlir.constant(384 : i32) : i32
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "ult" %v4, %c4 : i32
    llvm.cond_br %v6, ^then6, ^else6
  ^then6:
    nvvm.setmaxregister decrease 40 //- wrong2
    //+ wrong2: nvvm.setmaxregister decrease 176
    llvm.br ^join6
  ^else6:
    nvvm.setmaxregister increase 232 //- wrong1, wrong2
    //+ wrong1: nvvm.setmaxregister increase 240
    //+ wrong2: nvvm.setmaxregister increase 168
    llvm.br ^join6
  ^join6:
    %v8 = llvm.mul %block2, %c384 : i32
    %v9 = llvm.add %v8, %tid1 : i32
    %p10 = llvm.getelementptr %out[%v9] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p10 : i32, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong3(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c5 = llvm.mlir.constant(5 : i32) : i32
    %c31 = llvm.mlir.constant(31 : i32) : i32
    %c4 = llvm.mlir.constant(4 : i32) : i32
    %c11 = llvm.mlir.constant(11 : i32) : i32
    %c384 = llvm.mlir.constant(384 : i32) : i32
    %tid1 = nvvm.read.ptx.sreg.tid.x : i32
    %block2 = nvvm.read.ptx.sreg.ctaid.x : i32
    %smem3 = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %v4 = llvm.lshr %tid1, %c5 : i32
    %v5 = llvm.and %tid1, %c31 : i32
    %v6 = llvm.icmp "ult" %v4, %c4 : i32
    llvm.cond_br %v6, ^then6, ^else6
  ^then6:
    nvvm.setmaxregister decrease 40
    llvm.br ^join6
  ^else6:
    %v8 = llvm.icmp "ult" %v4, %c11 : i32
    llvm.cond_br %v8, ^then8, ^join8
  ^then8:
    nvvm.setmaxregister increase 232
    llvm.br ^join8
  ^join8:
    llvm.br ^join6
  ^join6:
    %v10 = llvm.mul %block2, %c384 : i32
    %v11 = llvm.add %v10, %tid1 : i32
    %p12 = llvm.getelementptr %out[%v11] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %tid1, %p12 : i32, !llvm.ptr<1>
    llvm.return
  }
}
