//===- Passes.td - Passes between the levels ---------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_PASSES_TD
#define ATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ChooseSchedulePass : Pass<"attn-choose-schedule", "func::FuncOp"> {
  let summary = "Choose tiles, warps and stages for each kernel shape";
  let description = [{
    Sets `tile.schedules` on functions at the online level: one schedule for up to 16 packed rows (decode) and one
    for more (prefill), the largest tiles whose shared memory fits the target. Prefill uses Hopper's asynchronous
    tensor cores on targets that have them, unless `schedule=mma`; a remark says so, or why it could not. A
    function that already carries schedules keeps them: the pass chooses their open fields, and an error names
    what no kernel or no launch on the target could do. Sets `tile.merge_schedule`, too, if there is none. Exact.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "the chip whose limits apply">,
    Option<"schedule", "schedule", "std::string", "\"auto\"", "the family of instructions: auto, mma or wgmma">
  ];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [Statistic<"decided", "decided", "schedules that were chosen">];
}

def MakeKernelsPass : Pass<"attn-make-kernels", "ModuleOp"> {
  let summary = "Make a function's kernels: a copy for each schedule, and the merge kernel";
  let description = [{
    For every function with complete schedules, makes a `gpu.module` of its name with one attend kernel per
    schedule and the merge kernel. A kernel is the function itself, with a `tile.schedule`; the merge kernel
    finishes `attn.parts` instead. A function that is marked `attn.device_plan` has a third copy, marked
    `attn.plans`. A function that is marked `attn.backward` has only kernels of gradients: a copy with stationary
    rows, and for each region a copy with stationary tokens. `attn.significance` adds, for each region, a copy
    with stationary tokens.

    A function with an operation on a cache is itself one kernel. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "gpu::GPUDialect", "arith::ArithDialect", "scf::SCFDialect",
                           "math::MathDialect"];
}

def DifferentiatePass : Pass<"attn-differentiate", "gpu::GPUModuleOp"> {
  let summary = "Turn a kernel's chain into that of its gradient";
  let description = [{
    In a kernel that `--attn-make-kernels` has marked `attn.gradient`, updates add to a gradient instead of a
    state: of rows, or of the tokens of one region. With `attn.significance` they add to the tokens' significance.
    Exact.
  }];
}

def WritePlanPass : Pass<"attn-write-plan", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that makes plans on the device";
  let description = [{
    Replaces the copy of a function that `--attn-make-kernels` has marked `attn.plans` by a kernel that makes the
    arrays of a plan (`attn_rt/artifact/PlanRecords.def`). The kernel reads query starts and lengths in device
    memory, and follows the function's operands and their visibility. Each sequence has one instance of each
    operand, and heads have no classes. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that make plans">];
}

def WalkPlanPass : Pass<"attn-walk-plan", "gpu::GPUModuleOp"> {
  let summary = "Put loops over the plan around a kernel's online operations";
  let description = [{
    A kernel walks the plan: tasks (rows that share a state) made of segments (token ranges of one instance) made
    of tiles. The kernel's updates stand in the loops, on parts of the query and of the regions. Its merges, its
    other operations that make states from states, and its finish follow the loops. Under wgmma one loop does the
    updates of all regions (`attn.one_of`), which must be a single chain; other operations on its state follow. A
    merge kernel walks the plan's lists of stored states. Reassociates: states are merged per tile, warp and task.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that walk the plan">];
}

def StageOperandsPass : Pass<"attn-stage-operands", "gpu::GPUModuleOp"> {
  let summary = "Copy the rows and tokens that online operations read to shared memory";
  let description = [{
    Allocates shared memory for a task's queries and for rings of key and value tiles. Gathers into them at the
    beginning of a task and of an iteration, at the addresses that a region's store gives. Under wgmma, where some
    warps only copy, each copy is a `tile.produce` of a ring, loaded by TMA or gathered as the schedule says. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
}

def ExpandOnlinePass : Pass<"attn-expand-online", "gpu::GPUModuleOp"> {
  let summary = "Expand online operations to their steps on one tile";
  let description = [{
    Expands by `OnlineOpInterface`. An update on fragments of sixteen rows becomes the operations of
    `AttnStepOps.td`, which have passes of their own (`--attn-lower-scores` and so on). Operations that begin and
    end states become tile operations, and so do all operations of a kernel without a schedule, where a warp has
    one row. Loops carry the values that stand for their states. Reassociates.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect", "math::MathDialect"];
}

// Lowers one operation of AttnStepOps.td. The pass reads that operation and nothing around it.
class LowerStep<string flag, string step, string what, string effect> : Pass<flag, "gpu::GPUModuleOp"> {
  let summary = "Lower " # step # ": " # what;
  let description = effect;
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect", "math::MathDialect"];
  let statistics = [Statistic<"lowered", "lowered", "operations that were lowered">];
}

def LowerScoresPass : LowerStep<"attn-lower-scores", "attn.scores", "products of rows and tokens",
  [{ Reassociates: tensor cores add in an order of their own. }]>;

def LowerGroupSumsPass : LowerStep<"attn-lower-group-sums", "attn.group_sums", "sums of groups of features",
  [{ Reassociates. }]>;

def LowerGroupScoresPass : LowerStep<"attn-lower-group-scores", "attn.group_scores", "products with scales and zeros",
  [{ Reassociates. }]>;

def LowerAccumulatePass : LowerStep<"attn-lower-accumulate", "attn.accumulate", "sums over rows or tokens",
  [{ Rounds pairs to 16 bits; reassociates. }]>;

def LowerDequantizePass : LowerStep<"attn-lower-dequantize", "attn.dequantize", "quantized factors of products",
  [{ Exact, but for scales and zeros: one rounding. }]>;

def LowerScoreFnPass : LowerStep<"attn-lower-score-fn", "attn.score_fn", "score regions on a tile",
  [{ Approximates tanh near 0 to 1.3e-7; merges constant factors. }]>;

def LowerMaskPass : LowerStep<"attn-lower-mask", "attn.mask", "masks of a tile",
  [{ Exact. }]>;

def LowerListMaskPass : LowerStep<"attn-lower-list-mask", "attn.list_mask", "masks of a list of single tokens",
  [{ Exact. }]>;

def LowerSoftmaxStepPass : LowerStep<"attn-lower-softmax-step", "attn.softmax_step", "a step of the online softmax",
  [{ Weights are relative to a unit that lags behind the maximum by less than 8 in log2. }]>;

def LowerRescalePass : LowerStep<"attn-lower-rescale", "attn.rescale", "the accumulator in a new unit",
  [{ One rounding. }]>;

def LowerWeightsPass : LowerStep<"attn-lower-weights", "attn.weights", "weights of finished rows",
  [{ Rounds the exponent once. }]>;

def LowerScoreGradPass : LowerStep<"attn-lower-score-grad", "attn.score_grad", "gradients of scores",
  [{ One rounding for each operation. }]>;

def LowerLiftPass : LowerStep<"attn-lower-lift", "attn.lift", "units with headroom for scales",
  [{ A unit moves; results do not depend on it but for rounding. }]>;

def LowerScaleWeightsPass : LowerStep<"attn-lower-scale-weights", "attn.scale_weights",
  "weights times numbers of tokens",
  [{ One rounding. }]>;

def WeighScoresPass : Pass<"attn-weigh-scores", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that computes significance from stored scores";
  let description = [{
    A thread takes tokens of one KV head. For each head of the group, the stored score becomes a weight under the
    row's LSE, and the weights of the heads become one number. Scores are kept to 1/64 of a power of two.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect", "math::MathDialect"];
}

def SumPartsPass : Pass<"attn-sum-parts", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that adds up gradients of tokens whose tasks were cut";
  let description = [{
    A block takes up to sixteen tokens of one KV head. Its threads add the partial gradients of their keys and
    values, in the order of the parts, and round once.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
}

def WalkRowsPass : Pass<"attn-walk-rows", "gpu::GPUModuleOp"> {
  let summary = "Put a loop over layers, rows and pieces around an operation on a cache";
  let description = [{
    In an iteration a warp handles a piece of eight rows, whose slots it reads from the lists. The loop holds the
    operations on the piece: `attn.load_rows` of the keys and of the values from their source, then
    `attn.store_rows` to their target. All loads of an iteration stand before its first store. Exact.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "the chip whose registers blocks share">
  ];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that walk rows">];
}

def ExpandRowsPass : Pass<"attn-expand-rows", "gpu::GPUModuleOp"> {
  let summary = "Expand pieces of rows to each lane's loads and stores";
  let description = [{
    `attn.load_rows` and `attn.store_rows` become loads and stores of the chunks in a lane's share, at the addresses
    that the store of a cache or the order of rows gives. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"expanded", "expanded", "operations on pieces of rows that were expanded">];
}

def ManagePagesPass : Pass<"attn-manage-pages", "gpu::GPUModuleOp"> {
  let summary = "Write the kernels of an operation on a table of pages";
  let description = [{
    Writes three kernels for an `attn.manage_pages`. The first counts, by block, the pages that lists release and
    ask for; the second releases pages; the third takes pages, and publishes the new free list. The launches order
    them. Writes one kernel for an `attn.compact_tokens`, and one for an `attn.revise_tokens`. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that manage pages">];
}

def TileToMachinePass : Pass<"tile-to-machine", "gpu::GPUModuleOp"> {
  let summary = "Lower tile operations to the code of one lane";
  let description = [{
    Fragments become one scalar per register, shared tiles become addresses, and products on tensor cores become
    `nvvm.mma.sync` fed by `nvvm.ldmatrix`, or wgmma. Approximates: transcendental functions use the
    special-function unit.
  }];
  let dependentDialects = ["LLVM::LLVMDialect", "NVVM::NVVMDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"lowered", "lowered", "tile operations that were lowered">];
}

def MachineToLLVMPass : Pass<"machine-to-llvm", "gpu::GPUModuleOp"> {
  let summary = "Lower control flow, scalars and functions to the LLVM dialect: the machine level";
  let description = [{ Exact. }];
  let dependentDialects = ["LLVM::LLVMDialect", "NVVM::NVVMDialect", "cf::ControlFlowDialect"];
  let statistics = [
    Statistic<"kernels", "kernels", "kernels that became functions of LLVM">,
    Statistic<"structures", "structures", "loops and branches that became blocks">
  ];
}

#endif
