// RUN: attn-opt %s --machine-to-llvm -split-input-file -verify-diagnostics | FileCheck %s

gpu.module @kernels {
  // The launch's limits travel with the kernel, and so does what the manifest needs.
  // CHECK: llvm.func @kernel(%{{.*}}: !llvm.ptr<1> {llvm.noalias}, %{{.*}}: i32) attributes {
  // CHECK-SAME: gpu.kernel, nvvm.kernel, nvvm.minctasm = 2 : i32, nvvm.reqntid = array<i32: 128>
  // CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "o">, #tile.parameter<dim, "rows">]
  // CHECK-SAME: tile.shared_bytes = 512 : i64, tile.threads = 128 : i32
  func.func @kernel(%o: !llvm.ptr<1>, %n: i32) attributes {
    tile.blocks_per_sm = 2 : i32, tile.parameters = [#tile.parameter<buffer, "o">, #tile.parameter<dim, "rows">],
    tile.shared_bytes = 512 : i64, tile.threads = 128 : i32} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    // Structured control flow and arith are gone.
    // CHECK-NOT: scf.
    // CHECK-NOT: arith.
    // CHECK: llvm.icmp "slt"
    // CHECK: llvm.cond_br
    // CHECK: llvm.getelementptr
    // CHECK: llvm.store
    // CHECK: llvm.return
    scf.for %i = %c0 to %n step %c1 : i32 {
      %p = llvm.getelementptr %o[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %i, %p : i32, !llvm.ptr<1>
    }
    return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel: a function with a body, without results and with tile.threads}}
  func.func @threads(%o: !llvm.ptr<1>) {
    return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{expected a kernel: a function with a body, without results and with tile.threads}}
  func.func @result(%n: i32) -> i32 attributes {tile.threads = 128 : i32} {
    return %n : i32
  }
}
