//===- Passes.td - Passes between the levels ---------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_PASSES_TD
#define ATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ChooseSchedulePass : Pass<"attn-choose-schedule", "func::FuncOp"> {
  let summary = "Choose tiles, warps and stages for each kernel shape";
  let description = [{
    Sets `tile.schedules` on functions at the online level: one schedule for up to 16 packed rows (decode) and one for
    more (prefill), the largest tiles whose shared memory fits the target. On a target that has them prefill uses
    Hopper's asynchronous tensor cores, unless `schedule=mma`; a remark says so, or why it could not. A function that
    already carries schedules keeps them: what they leave open is chosen, and an error says what no kernel or no launch
    on the target could do. Sets `tile.merge_schedule`, too, where there is none. Exact.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "the chip whose limits apply">,
    Option<"schedule", "schedule", "std::string", "\"auto\"", "the family of instructions: auto, mma or wgmma">
  ];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [Statistic<"decided", "decided", "schedules that were chosen">];
}

def MakeKernelsPass : Pass<"attn-make-kernels", "ModuleOp"> {
  let summary = "Make a function's kernels: copies of it, each with one schedule, and one that merges";
  let description = [{
    For every function with complete schedules, makes a `gpu.module` of its name with one attend kernel per schedule and the
    merge kernel. A kernel is the function itself, with a `tile.schedule`; that which merges finishes `attn.parts`
    instead. A function that is marked `attn.device_plan` has a third copy, marked `attn.plans`. One that is marked
    `attn.backward` has kernels of gradients alone: a copy that holds rows, and for each region one that holds its tokens.
    `attn.significance` adds, for each region, a copy that holds its tokens.

    A function with an operation on a cache is one kernel itself. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "gpu::GPUDialect", "arith::ArithDialect", "scf::SCFDialect",
                           "math::MathDialect"];
}

def DifferentiatePass : Pass<"attn-differentiate", "gpu::GPUModuleOp"> {
  let summary = "Turn a kernel's chain into that of its gradient";
  let description = [{
    In a kernel that `--attn-make-kernels` has marked `attn.gradient`, updates add to a gradient in place of a state: of rows,
    or of the tokens of one region; where `attn.significance` says so, what those are worth. Exact.
  }];
}

def WritePlanPass : Pass<"attn-write-plan", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that makes plans on the device";
  let description = [{
    Of the copy of a function that `--attn-make-kernels` has marked `attn.plans` nothing is left but what its operands and
    their visibility say: from query starts and lengths in device memory the kernel makes the arrays of a plan
    (`attn_rt/artifact/PlanRecords.def`). One instance of each operand to a sequence, no head classes. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that make plans">];
}

def WalkPlanPass : Pass<"attn-walk-plan", "gpu::GPUModuleOp"> {
  let summary = "Put loops over the plan around a kernel's online operations";
  let description = [{
    A kernel walks the plan: tasks (rows that share a state) made of segments (token ranges of one instance) made of
    tiles. In the loops stand the kernel's updates, on parts of the query and of the regions; behind them its merges,
    what else makes states of states, and its finish. Under wgmma one loop does the updates of all regions
    (`attn.one_of`), which must be a single chain, with other operations on its state behind it. A kernel that merges
    walks the plan's lists of stored states. Reassociates: states are merged per tile, warp and task.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that walk the plan">];
}

def StageOperandsPass : Pass<"attn-stage-operands", "gpu::GPUModuleOp"> {
  let summary = "Copy the rows and tokens that online operations read to the chip";
  let description = [{
    Allocates shared memory for a task's queries and for rings of key and value tiles, and gathers into them where a
    task and where an iteration begins, as a region's store says where tokens lie. Under wgmma, where some warps only
    copy, each copy is a `tile.produce` of a ring, of boxes or gathered as the schedule says. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
}

def ExpandOnlinePass : Pass<"attn-expand-online", "gpu::GPUModuleOp"> {
  let summary = "Let every online operation become the steps that it takes on one tile";
  let description = [{
    By `OnlineOpInterface`: an update on fragments of sixteen rows becomes the operations of `AttnStepOps.td`, which have
    passes of their own (`--attn-lower-scores` and so on); what begins and ends states, and all in a kernel without
    schedule, where a warp has one row, becomes tile operations. Loops carry what stands for their states. Reassociates.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect", "math::MathDialect"];
}

// Lowers one operation of AttnStepOps.td. It reads that operation and nothing around it.
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

def LowerDequantizePass : LowerStep<"attn-lower-dequantize", "attn.dequantize", "codes as factors of products",
  [{ Exact, but for scales and zeros: one rounding. }]>;

def LowerScoreFnPass : LowerStep<"attn-lower-score-fn", "attn.score_fn", "score regions on a tile",
  [{ Approximates tanh near 0 to 1.3e-7; merges constant factors. }]>;

def LowerMaskPass : LowerStep<"attn-lower-mask", "attn.mask", "what rows see of a tile",
  [{ Exact. }]>;

def LowerListMaskPass : LowerStep<"attn-lower-list-mask", "attn.list_mask", "what rows see of a list of single tokens",
  [{ Exact. }]>;

def LowerSoftmaxStepPass : LowerStep<"attn-lower-softmax-step", "attn.softmax_step", "a step of the online softmax",
  [{ Weights are relative to a unit that lags behind the maximum by less than 8 in log2. }]>;

def LowerRescalePass : LowerStep<"attn-lower-rescale", "attn.rescale", "what was accumulated in a new unit",
  [{ One rounding. }]>;

def LowerWeightsPass : LowerStep<"attn-lower-weights", "attn.weights", "weights of finished rows",
  [{ Rounds the exponent once. }]>;

def LowerScoreGradPass : LowerStep<"attn-lower-score-grad", "attn.score_grad", "gradients of scores",
  [{ One rounding for each operation. }]>;

def LowerLiftPass : LowerStep<"attn-lower-lift", "attn.lift", "units that leave room for scales",
  [{ A unit moves; results do not depend on it but for rounding. }]>;

def LowerScaleWeightsPass : LowerStep<"attn-lower-scale-weights", "attn.scale_weights", "weights times numbers of tokens",
  [{ One rounding. }]>;

def WeighScoresPass : Pass<"attn-weigh-scores", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that makes significance of stored scores";
  let description = [{
    A thread takes tokens of one KV head: of each head of the group the score that a row's kernel has stored becomes its
    weight under the row's LSE, and these one number. Scores are kept to 1/64 of a power of two.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect", "math::MathDialect"];
}

def SumPartsPass : Pass<"attn-sum-parts", "gpu::GPUModuleOp"> {
  let summary = "Write the kernel that adds up gradients of tokens whose tasks were cut";
  let description = [{
    A block takes up to sixteen tokens of one KV head. Its threads add what each part has left of their keys' and values'
    gradients, in the order of the parts, and round once.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
}

def WalkRowsPass : Pass<"attn-walk-rows", "gpu::GPUModuleOp"> {
  let summary = "Put a loop over layers, rows and pieces around an operation on a cache";
  let description = [{
    An iteration of a warp is a piece of eight rows, whose slots it reads from the lists. In the loop stands what it does with
    them: `attn.load_rows` of the keys and of the values from where they are, then `attn.store_rows` to where they go. All loads of a
    iteration stand before its first store. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that walk rows">];
}

def ExpandRowsPass : Pass<"attn-expand-rows", "gpu::GPUModuleOp"> {
  let summary = "Let pieces of rows become what each lane reads and writes";
  let description = [{
    `attn.load_rows` and `attn.store_rows` become loads and stores of the units in a lane's share, at the addresses that the store
    of a cache or the order of rows says. Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"expanded", "expanded", "operations on pieces of rows that were expanded">];
}

def ManagePagesPass : Pass<"attn-manage-pages", "gpu::GPUModuleOp"> {
  let summary = "Write the kernels of an operation on a table of pages";
  let description = [{
    Three for an `attn.manage_pages`: one counts the pages that lists give back and ask for, by block; one gives pages back;
    one takes them, and publishes what became of the free list. The launches order them. One for an `attn.compact_tokens`.
    Exact.
  }];
  let dependentDialects = ["tile::TileDialect", "arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels that manage pages">];
}

def TileToMachinePass : Pass<"tile-to-machine", "gpu::GPUModuleOp"> {
  let summary = "Lower tile operations to the code of one lane";
  let description = [{
    Fragments become one scalar per register, shared tiles addresses, mmas `nvvm.mma.sync` fed by `nvvm.ldmatrix`.
    Approximates: transcendental functions use the special-function unit.
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
