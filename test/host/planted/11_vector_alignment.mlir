// Vectors of 16 bytes are loaded from multiples of 16.
// wrong: from 4 bytes later.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = llvm.mlir.constant(0 : i32) : i32
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %c16 = llvm.mlir.constant(16 : i32) : i32
    %off = llvm.mul %tid, %c16 : i32
    %skew = llvm.mlir.constant(16 : i32) : i32 //- wrong
    //+ wrong: %skew = llvm.mlir.constant(4 : i32) : i32
    %at = llvm.add %off, %skew : i32
    %pv = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %vec = llvm.load %pv : !llvm.ptr<1> -> vector<4xi32>
    %v = llvm.extractelement %vec[%c0 : i32] : vector<4xi32>
    %gt0 = llvm.mlir.constant(64 : i32) : i32
    %gb = llvm.mul %block, %gt0 : i32
    %gtid = llvm.add %gb, %tid : i32
    %po = llvm.getelementptr %out[%gtid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %v, %po : i32, !llvm.ptr<1>
    llvm.return
  }
}
