//===- Passes.td - Passes on the tile level ----------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_PASSES_TD
#define ATTN_DIALECT_TILE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def InferLayoutsPass : Pass<"tile-infer-layouts", "gpu::GPUModuleOp"> {
  let summary = "Give every fragment a layout and every shared tile its swizzle";
  let description = [{
    A layout belongs to a value. Mmas, loads, casts, reductions and maps over two axes fix those of their operands and
    results: left operands are `lhs`, other two-axis fragments `acc`, one-axis fragments `row` or `col` by the place of
    their axis in the two-axis fragment that they meet. Values that loops, branches and maps over one axis hand on take
    the layout that reaches them, the loop's own before what enters it; values that can have any (a scalar in all
    elements, coordinates, what is read from memory) take the one their users need. Where a user needs another layout,
    the value is made twice if that takes no memory, else converted once (`tile.convert`), behind its definition.
    Layouts that are given stay. Shared tiles are swizzled. Exact.
  }];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [
    Statistic<"conversions", "conversions", "conversions between layouts that were inserted">,
    Statistic<"remade", "remade", "values that were made again in another layout">
  ];
}

def SkipFullMasksPass : Pass<"tile-skip-full-masks", "gpu::GPUModuleOp"> {
  let summary = "Branch around masks of tiles that every row sees whole";
  let description = [{
    A mask whose `partial` flag is false changes nothing; it moves into a branch on the flag, which is uniform over
    the warp. A mask whose flag is known goes away or stays unconditionally. Exact.
  }];
  let dependentDialects = ["scf::SCFDialect"];
  let statistics = [
    Statistic<"branches", "branches", "masks that moved into a branch">,
    Statistic<"dropped", "dropped", "masks that change nothing and went away">
  ];
}

def SpecializeWarpsPass : Pass<"tile-specialize-warps", "gpu::GPUModuleOp"> {
  let summary = "Let some warps fill rings and the others use the tiles";
  let description = [{
    A kernel whose schedule is of wgmma and that has a `tile.produce` is parted from the first operation with one on: what
    stands in front is every warp's. The schedule's producers do what fills need, the consumers all the rest, where each
    `tile.produce` becomes a `tile.consume`. A loop or branch is in a role with only those carried values and results that
    the role needs. What both need is computed in both, so it must be free of effects, and no tile may be among it.

    Fills that name a warp are that warp's, in a branch of its own, in the order of the warps' numbers. Fills that name
    none are all producers', who then walk the loops around them together and part where a loop has only fills that
    name a warp. A fetch needs a named warp; the gathers of a fill have scope `warp` where it names one, else `producers`, and where
    any fill gathers, producers wait for their copies at the end. All fills of a ring name the same warp, or none.

    A fill may stand in loops (`scf.for`), whose bounds must be the same in all warps, and in no branch: both sides of a
    ring count its tiles. Branches inside of a fill are free. Registers are given from one role to the other as the
    schedule says. Kernels without fills stay. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"rings", "rings", "rings that producers fill">,
    Statistic<"taken", "taken", "fills that became takes of a tile">
  ];
}

def UnswitchLoopsPass : Pass<"tile-unswitch-loops", "gpu::GPUModuleOp"> {
  let summary = "Decide in front of a loop over tiles what is the same for all of them";
  let description = [{
    A loop with a `tile.produce` or `tile.consume` in its body, and there or in the copies of such a fill an `scf.if` whose
    condition is from outside of the loop, becomes an `scf.if` between two loops, in which all branches on that
    condition are resolved; what a side does not need leaves its loop, and so do carried values that all iterations
    hand on. Repeated, inner loops first, until there is no such condition.

    Where the condition is that the loop's count is below a limit from outside of it, two loops follow each other: one
    up to the limit in which the branch is taken, one from there on in which it is not.

    Branches in other regions (the map of a
    gather, of a lookup) are decided tile by tile as before. Only in kernels whose schedule is of wgmma. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [
    Statistic<"unswitched", "unswitched", "loops that became a branch between two loops">,
    Statistic<"halved", "halved", "loops that became two, one behind the other">
  ];
}

def PipelineCopiesPass : Pass<"tile-pipeline-copies", "gpu::GPUModuleOp"> {
  let summary = "Let copies of later tiles run while this one is computed";
  let description = [{
    A loop marked `tile.stages = S` starts with a gather into stage 0 of its rings, a commit, a wait and a sync, and
    ends with a sync. It becomes a loop in which S - 1 gathers are under way, one barrier per iteration. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"pipelined", "pipelined", "loops whose copies run ahead">,
    Statistic<"early", "early", "of these, loops whose first copies start before an older wait">
  ];
}

def ReadAheadPass : Pass<"tile-read-ahead", "gpu::GPUModuleOp"> {
  let summary = "Let loops that compute carry the record that their next iteration reads";
  let description = [{
    A loop whose body reads the `tile.record` of its own iteration carries it: the next one is asked for while this one
    is computed. A loop in its body over a range that the record names finds its first record carried, too. What is
    `first` of a record is not read. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"loops", "loops", "loops that carry the record of their next iteration">];
}

def LookAheadPass : Pass<"tile-look-ahead", "gpu::GPUModuleOp"> {
  let summary = "Compute each tile.ahead one iteration before its loop uses it";
  let description = [{
    A `tile.ahead` of what its loop counts is carried by the loop; any other is computed where it stands. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [
    Statistic<"carried", "carried", "values that loops compute an iteration ahead">,
    Statistic<"inPlace", "in-place", "values that are computed where they stand">
  ];
}

def OverlapMmasPass : Pass<"tile-overlap-mmas", "gpu::GPUModuleOp"> {
  let summary = "Let a loop's second mma run beside the first of the next iteration";
  let description = [{
    In kernels on wgmma. A loop that starts and finishes two mmas, of which the second adds to what the loop carries a
    product of what is computed from the result of the first, starts the second one an iteration later, before the next
    first one is finished. What lies between the two is computed while the second is under way. With it move the waits
    for the tile that it reads, and that tile's release. Other loops stay as they are. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"moved", "moved", "mmas that start an iteration later">,
    Statistic<"left", "left", "of these, mmas that a run of a loop leaves to the next run">
  ];
}

def StartEarlyPass : Pass<"tile-start-early", "gpu::GPUModuleOp"> {
  let summary = "Start a loop's first mma in the iteration before";
  let description = [{
    In kernels on wgmma. A loop whose first mma reads nothing that an iteration makes carries that mma's result: it is
    started in the iteration before, with the next one's tile. Where warps meet in the loop, it is started in front of
    the barrier, when the mmas before have ended, and finished with the first that is started behind the barrier; where
    they do not, and the iteration ends with several sums that are finished together, in front of the last of these, and
    finished with them. The last iteration starts it once more with its own tile. Loops whose first mma has more than 64
    columns stay as they are, and loops that do neither. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [Statistic<"moved", "moved", "mmas that start an iteration earlier">];
}

def PingPongPass : Pass<"tile-ping-pong", "gpu::GPUModuleOp"> {
  let summary = "Let warpgroups start their mmas one after the other";
  let description = [{
    In kernels on wgmma whose schedule says `turns`. In each innermost loop that starts mmas or awaits tiles a warpgroup
    waits for its turn before it awaits what its mmas read, and hands the turn on when it has started them. A loop that
    takes tiles without use waits for its turn alone. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [Statistic<"loops", "loops", "loops in which warpgroups take turns">];
}

def InsertBarriersPass : Pass<"tile-insert-barriers", "gpu::GPUModuleOp"> {
  let summary = "Let warps that fill rings and warps that take tiles wait for each other";
  let description = [{
    Of a kernel with roles whose `tile.schedule` is of kind wgmma. Each ring that is filled gets a barrier `full` and a
    barrier `empty` per stage, and both sides count its tiles: fills become an await of the stage, the copies into it and
    an arrival, takes an await in front of the tile's first use and an arrival behind the last one. Rings that the same
    loops fill or take share a counter, which all loops and branches around carry. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"rings", "rings", "rings whose stages got barriers">,
    Statistic<"barriers", "barriers", "barriers that were allocated">
  ];
}

def HoistUniformPass : Pass<"tile-hoist-uniform", "gpu::GPUModuleOp"> {
  let summary = "Compute in front of an operation what is the same for all elements of its region";
  let description = [{
    A region of a tile operation is code for one element, or for one line. Pure operations of it that depend on nothing
    in it move in front of the operation. Exact.
  }];
  let statistics = [Statistic<"hoisted", "hoisted", "operations that moved out of a region">];
}

def FoldConstantsPass : Pass<"tile-fold-constants", "gpu::GPUModuleOp"> {
  let summary = "Compute what is known, have each constant once, and drop what nothing uses";
  let description = [{
    A canonicalizer without patterns, in two walks over a kernel. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect"];
  let statistics = [
    Statistic<"folded", "folded", "operations that were folded">,
    Statistic<"erased", "erased", "operations that nothing used">
  ];
}

def UnrollLoopsPass : Pass<"tile-unroll-loops", "gpu::GPUModuleOp"> {
  let summary = "Do several iterations of a loop at once, reads first";
  let description = [{
    A loop marked `tile.unroll = N` counts from 0 in steps of 1. It becomes one in steps of N, whose iterations' reads
    are started one after the other before the first is used, and loops in steps of N/2, N/4 and so on to 1 for what is
    left. Exact: what a loop carries is computed in the same order.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"unrolled", "unrolled", "loops that do several iterations at once">];
}

def AllocateSharedPass : Pass<"tile-allocate-shared", "gpu::GPUModuleOp"> {
  let summary = "Place a kernel's tiles in the block's shared memory";
  let description = [{
    Sets the offset of every `tile.alloc`, in order, 1024 bytes aligned (the period of the widest swizzle), overlays
    where their base is, and the kernel's `tile.shared_bytes`. A kernel whose schedule says `shared_bytes` must take
    just these: its tiles were chosen to fit. Exact.
  }];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [
    Statistic<"placed", "placed", "allocations with memory of their own">,
    Statistic<"overlaid", "overlaid", "allocations that lie over others">
  ];
}

#endif
