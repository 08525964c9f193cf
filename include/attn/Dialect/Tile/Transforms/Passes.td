//===- Passes.td - Passes on the tile level ----------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_PASSES_TD
#define ATTN_DIALECT_TILE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def InferLayoutsPass : Pass<"tile-infer-layouts", "gpu::GPUModuleOp"> {
  let summary = "Give every fragment a layout and every shared tile its swizzle";
  let description = [{
    A layout belongs to a value. MMAs, loads, casts, reductions and maps over two axes fix the layouts of
    their operands and results: left operands are `lhs`, other two-axis fragments `acc`. One-axis fragments
    are `row` or `col`, by the position of their axis in the two-axis fragment that they combine with. Values
    that loops, branches and maps over one axis pass through take the layout that reaches them, the loop's own
    before that of its initial values. Values that can have any layout (splats, coordinates, elements read
    from memory) take the one their users need. If a user needs another layout, the value is computed twice
    if that takes no memory, and otherwise converted once (`tile.convert`), after its definition. Given
    layouts stay. Shared tiles are swizzled. Exact.
  }];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [
    Statistic<"conversions", "conversions", "conversions between layouts that were inserted">,
    Statistic<"remade", "remade", "values that were computed again in another layout">
  ];
}

def SkipFullMasksPass : Pass<"tile-skip-full-masks", "gpu::GPUModuleOp"> {
  let summary = "Branch around masks of fully visible tiles";
  let description = [{
    A mask whose `partial` flag is false changes nothing; it moves into a branch on the flag, which is uniform
    over the warp, with reads of columns that only it uses. A mask whose flag is known is removed or stays
    unconditionally. Exact.
  }];
  let dependentDialects = ["scf::SCFDialect"];
  let statistics = [
    Statistic<"branches", "branches", "masks that moved into a branch">,
    Statistic<"dropped", "dropped", "masks that change nothing and were removed">
  ];
}

def SpreadChecksPass : Pass<"tile-spread-checks", "gpu::GPUModuleOp"> {
  let summary = "Let lanes check different lines of a tile";
  let description = [{
    `tile.any` of a check of a tile's column becomes `tile.any_line`: each lane reads and checks other lines, where
    a fragment has each number in eight lanes. Exact.
  }];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [
    Statistic<"spread", "spread", "checks whose lines are spread over lanes">
  ];
}

def SpecializeWarpsPass : Pass<"tile-specialize-warps", "gpu::GPUModuleOp"> {
  let summary = "Split a kernel's warps into producers and consumers of rings";
  let description = [{
    Applies to a kernel with a wgmma schedule and a `tile.produce`. The kernel is split from the first operation
    with a `tile.produce` on; earlier operations belong to every warp. The schedule's producers run the
    operations that `tile.produce`s need. The consumers run all the rest, where each `tile.produce` becomes a
    `tile.consume`. A loop or branch is in a role with only those carried values and results that the role needs.
    Values that both roles need are computed in both, so they must be free of effects, and no tile may be
    among them.

    A `tile.produce` with `warp` belongs to that warp, in a branch of its own, in the order of the warps'
    numbers. A `tile.produce` without `warp` belongs to all producers. They then walk the enclosing loops
    together and split where a loop has only `tile.produce`s with `warp`. A TMA load needs `warp`; the gathers of
    a `tile.produce` have scope `warp` with it, otherwise `producers`. If any `tile.produce` gathers, producers
    wait for their copies at the end. All `tile.produce`s of a ring name the same warp, or none.

    A `tile.produce` may be in loops (`scf.for`), whose bounds must be the same in all warps, and in no branch:
    both sides of a ring count its tiles. Branches inside of a `tile.produce` are unrestricted. Registers move
    from one role to the other as the schedule says. Kernels without `tile.produce` are unchanged. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"rings", "rings", "rings of producers">,
    Statistic<"taken", "taken", "tiles that consumers take from producers">
  ];
}

def UnswitchLoopsPass : Pass<"tile-unswitch-loops", "gpu::GPUModuleOp"> {
  let summary = "Move conditions that are the same for all tiles out of the loop over tiles";
  let description = [{
    A loop qualifies if it has a `tile.produce` or `tile.consume` in its body, and an `scf.if` whose condition is
    defined outside. The `scf.if` is in the body or in the copies of such a `tile.produce`. The loop becomes an
    `scf.if` between two loops, in which all branches on that condition are resolved. Operations that a side
    does not need leave its loop, and so do carried values that all iterations pass on unchanged. This
    repeats, inner loops first, until there is no such condition.

    If the condition is that the loop's counter is below a limit defined outside of the loop, two loops follow
    each other: one up to the limit in which the branch is taken, one from the limit on in which it is not.

    Branches in other regions (the map of a gather, of a lookup) are still decided tile by tile. Applies only
    to kernels with a wgmma schedule. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [
    Statistic<"unswitched", "unswitched", "loops that became a branch between two loops">,
    Statistic<"halved", "halved", "loops that became two consecutive loops">
  ];
}

def PipelineCopiesPass : Pass<"tile-pipeline-copies", "gpu::GPUModuleOp"> {
  let summary = "Let copies of later tiles run during the computation of a tile";
  let description = [{
    A loop marked `tile.stages = S` starts with a gather into stage 0 of its rings, a commit, a wait and a
    sync, and ends with a sync. It becomes a loop with S - 1 gathers in flight and one barrier per iteration.
    Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"pipelined", "pipelined", "loops whose copies run ahead">,
    Statistic<"early", "early", "of these, loops whose first copies start before an older wait">
  ];
}

def ReadAheadPass : Pass<"tile-read-ahead", "gpu::GPUModuleOp"> {
  let summary = "Let loops that compute carry the record of their next iteration";
  let description = [{
    A loop whose body reads the `tile.record` of its own iteration carries the record: the next record is
    requested during the current iteration. For a loop in its body over a range that the record names, the
    first record is carried, too. Records whose `first` is known are not read. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"loops", "loops", "loops that carry the record of their next iteration">];
}

def LookAheadPass : Pass<"tile-look-ahead", "gpu::GPUModuleOp"> {
  let summary = "Compute each tile.ahead one iteration before its use";
  let description = [{
    A `tile.ahead` of its loop's counter is carried by the loop; any other is computed in place. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [
    Statistic<"carried", "carried", "values that loops compute an iteration ahead">,
    Statistic<"inPlace", "in-place", "values that are computed in place">
  ];
}

def OverlapMmasPass : Pass<"tile-overlap-mmas", "gpu::GPUModuleOp"> {
  let summary = "Run a loop's second MMA beside the first MMA of the next iteration";
  let description = [{
    Applies to kernels with a wgmma schedule, and in them to loops that start and finish two MMAs. The second
    MMA multiplies values computed from the result of the first, and accumulates into a value that the loop
    carries. The pass starts the second MMA one iteration later, before the next first MMA is finished. The
    operations between the two are computed while the second is in flight. The waits for the tile that it
    reads, and that tile's release, move with it. Other loops are unchanged. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"moved", "moved", "late MMAs that start an iteration later">,
    Statistic<"left", "left", "of these, MMAs that a run of a loop leaves to the next run">
  ];
}

def StartEarlyPass : Pass<"tile-start-early", "gpu::GPUModuleOp"> {
  let summary = "Start a loop's first MMA in the previous iteration";
  let description = [{
    Applies to kernels with a wgmma schedule. A loop whose first MMA reads nothing that an iteration computes
    carries that MMA's result: it is started in the previous iteration, with the next tile. If warps sync in
    the loop, it starts before that barrier, once earlier MMAs have ended, and finishes with the first MMA
    that starts after the barrier. Otherwise, if the iteration ends with several sums that finish together, it
    starts before the last of these and finishes with them. The last iteration starts it once more with its
    own tile. Loops whose first MMA has more than 64 columns are unchanged, and so are loops with neither a
    barrier nor such sums. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [Statistic<"moved", "moved", "early MMAs that start an iteration earlier">];
}

def PingPongPass : Pass<"tile-ping-pong", "gpu::GPUModuleOp"> {
  let summary = "Let warpgroups start their MMAs in ping-pong";
  let description = [{
    Applies to kernels with a wgmma schedule that says `ping_pong`. In each innermost loop that starts MMAs or
    waits for tiles, a warpgroup waits for its turn before it waits for tiles. It passes the turn on when it
    has started its MMAs. A loop that takes tiles without using them waits for its turn only. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [Statistic<"loops", "loops", "loops with ping-pong of warpgroups">];
}

def InsertBarriersPass : Pass<"tile-insert-barriers", "gpu::GPUModuleOp"> {
  let summary = "Let producers and consumers of rings wait for each other";
  let description = [{
    Applies to a kernel with roles whose `tile.schedule` is of kind wgmma. Each produced ring gets a barrier
    `full` and a barrier `empty` per stage, and both sides count its tiles. A `tile.produce` becomes an mbarrier
    wait for the stage, the copies into it and an arrival. A `tile.consume` becomes an mbarrier wait before the
    tile's first use and an arrival after the last use. Rings that the same loops produce or consume share a
    counter, which all enclosing loops and branches carry. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect", "tile::TileDialect"];
  let statistics = [
    Statistic<"rings", "rings", "rings whose stages got barriers">,
    Statistic<"barriers", "barriers", "barriers that were allocated">
  ];
}

def HoistUniformPass : Pass<"tile-hoist-uniform", "gpu::GPUModuleOp"> {
  let summary = "Move operations that are the same for all elements out of regions";
  let description = [{
    A region of a tile operation is code for one element, or for one line. Its pure operations that depend on
    nothing in the region move before the operation. Exact.
  }];
  let statistics = [Statistic<"hoisted", "hoisted", "operations that moved out of a region">];
}

def FoldConstantsPass : Pass<"tile-fold-constants", "gpu::GPUModuleOp"> {
  let summary = "Fold constants, merge equal constants, and erase unused operations";
  let description = [{
    A canonicalizer without patterns, in two walks over a kernel. Exact.
  }];
  let dependentDialects = ["arith::ArithDialect"];
  let statistics = [
    Statistic<"folded", "folded", "operations that were folded">,
    Statistic<"erased", "erased", "unused operations">
  ];
}

def UnrollLoopsPass : Pass<"tile-unroll-loops", "gpu::GPUModuleOp"> {
  let summary = "Unroll loops, with reads first";
  let description = [{
    A loop marked `tile.unroll = N` counts from 0 in steps of 1. It becomes one in steps of N, whose
    iterations start all their reads before the first is used. Loops in steps of N/2, N/4 and so on to 1 do
    the remaining iterations. Exact: carried values are computed in the same order.
  }];
  let dependentDialects = ["arith::ArithDialect", "scf::SCFDialect"];
  let statistics = [Statistic<"unrolled", "unrolled", "loops that do several iterations at once">];
}

def AllocateSharedPass : Pass<"tile-allocate-shared", "gpu::GPUModuleOp"> {
  let summary = "Place a kernel's tiles in the block's shared memory";
  let description = [{
    Sets the offset of every `tile.alloc`, in order, 1024 bytes aligned (the period of the widest swizzle),
    and the kernel's `tile.shared_bytes`. Overlays get the offset of their base. If a kernel's schedule says
    `shared_bytes`, its tiles were chosen to fit, and the total must equal that number. Exact.
  }];
  let dependentDialects = ["tile::TileDialect"];
  let statistics = [
    Statistic<"placed", "placed", "allocations with memory of their own">,
    Statistic<"overlaid", "overlaid", "allocations that lie over others">
  ];
}

#endif
