// Two tokens have a quantized value of four bits each. Every block, one per token, writes a byte of its own.
// wrong: tokens share a byte, of which each block writes its half.
gpu.module @planted {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  llvm.func @right(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %token = nvvm.read.ptx.sreg.ctaid.x : i32
    %width = llvm.mlir.constant(64 : i32) : i32
    %row = llvm.mul %token, %width : i32
    %place = llvm.add %row, %tid : i32
    %code = llvm.trunc %tid : i32 to i8
    %po = llvm.getelementptr %out[%place] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %code, %po : i8, !llvm.ptr<1>
    llvm.return
  }

  llvm.func @wrong(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %table: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %token = nvvm.read.ptx.sreg.ctaid.x : i32
    %bits = llvm.mlir.constant(4 : i32) : i32
    %shift = llvm.mul %token, %bits : i32
    %shifted = llvm.shl %tid, %shift : i32
    %half = llvm.trunc %shifted : i32 to i8
    %po = llvm.getelementptr %out[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %half, %po : i8, !llvm.ptr<1>
    llvm.return
  }
}
