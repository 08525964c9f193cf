#ifndef ATTN_CONVERSION_PASSES_TD
#define ATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ChooseSchedulePass : Pass<"attn-choose-schedule", "func::FuncOp"> {
  let summary = "Choose tiles, warps and stages for each kernel shape";
  let description = [{
    Sets `tile.schedules` on functions at the online level: one schedule for up to 16 packed rows (decode) and one for
    more (prefill), the largest tiles whose shared memory fits the target. On a target that has them prefill uses
    Hopper's asynchronous tensor cores, unless `schedule=mma`; a remark says so, or why it could not. A function that
    already carries schedules keeps them; they are checked against the target. Exact.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "the chip whose limits apply">,
    Option<"schedule", "schedule", "std::string", "\"auto\"", "the family of instructions: auto, mma or wgmma">
  ];
  let dependentDialects = ["tile::TileDialect"];
}

def AttnToTilePass : Pass<"attn-to-tile", "ModuleOp"> {
  let summary = "Write the kernels of a chain of online updates, or of an operation on a cache";
  let description = [{
    For every function with schedules, makes a `gpu.module` of its name with one attend kernel per schedule and the
    merge kernel. The kernels walk the plan: tasks (rows that share an accumulator) made of segments (token ranges of
    one instance). Reassociates: partial softmax states are merged per tile, warp and share.

    A function with an operation on a cache becomes one kernel, of the function's name, that copies rows. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "gpu::GPUDialect", "arith::ArithDialect", "scf::SCFDialect",
                           "math::MathDialect"];
}

def TileToMachinePass : Pass<"tile-to-machine", "gpu::GPUModuleOp"> {
  let summary = "Lower tile operations to the code of one lane";
  let description = [{
    Fragments become one scalar per register, shared tiles addresses, dots `nvvm.mma.sync` fed by `nvvm.ldmatrix`.
    Approximates: transcendental functions use the special-function unit.
  }];
  let dependentDialects = ["LLVM::LLVMDialect", "NVVM::NVVMDialect", "arith::ArithDialect", "scf::SCFDialect"];
}

def MachineToLLVMPass : Pass<"machine-to-llvm", "gpu::GPUModuleOp"> {
  let summary = "Lower control flow, scalars and functions to the LLVM dialect: the machine level";
  let description = [{ Exact. }];
  let dependentDialects = ["LLVM::LLVMDialect", "NVVM::NVVMDialect", "cf::ControlFlowDialect"];
}

#endif
