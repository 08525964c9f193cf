# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants without a fault, and the reasons."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Survivor:
    mutation: str
    op: str
    reason: str
    text: str = ""  # a part of the operation's text
    cases: str = ""  # a part of the names of its cases
    ordinals: tuple[int, ...] = ()  # index among the kernel's operations of that name; none: all of them
    kernel: str = ""  # a part of its name

    def is_this(self, case, mutant):
        return (
            (self.mutation, self.op) == (mutant["mutation"], mutant["op"])
            and self.text in mutant["text"]
            and self.cases in case.name
            and (not self.ordinals or mutant["ordinal"] in self.ordinals)
            and self.kernel in mutant["kernel"]
        )


SURVIVORS = (
    Survivor(
        "drop",
        "nvvm.griddepcontrol",
        "a hint: the next launch may begin. Without the hint it begins when this one has ended",
        text="launch_dependents",
    ),
    Survivor(
        "drop",
        "nvvm.setmaxregister",
        "registers for ptxas: without it consumers have the registers of the launch, and spill. Their results are the same",
        text="increase",
    ),
    Survivor(
        "drop",
        "nvvm.wgmma.fence.aligned",
        "a pair of MMAs: the operands of the second were written before the first one's fence. ptxas gets a fence "
        "for each MMA, because it takes a fence for the start of a stage (WgmmaPatterns.cpp)",
        cases="wgmma",
        ordinals=(1,),
    ),
    # Lanes of a warp that loads by TMA sync after their wait for a free stage: a late lane would miss two
    # phases. Without any other sync before the next round, a detector sees it in every schedule.
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "after the wait for a free stage: shuffles of coordinates follow it, at which lanes sync",
        cases="prefill, wgmma, boxes of pages",
        ordinals=(0, 1, 3),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "as above, for queries",
        cases="prefill, wgmma, heads of 128",
        ordinals=(3,),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "as above, for keys and values",
        cases="prefill, wgmma, gathered queries",
        ordinals=(0, 1),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "as above, for rows: the sync after the wait for the stage of their outputs, by the same warp, comes before any release "
        "of the task",
        cases="gradients, wgmma, in order",
        ordinals=(5,),
        kernel="_rows",
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "as above, for keys: a block of tokens has one task, and each lane of the warp arrives after its copies of numbers of "
        "rows, without which no key is released",
        cases="fused",
        ordinals=(0,),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "before the arrival that releases the operands of MMAs: these ended for the whole warp when it waited for "
        "them",
        cases="gradients, wgmma",
        ordinals=(9, 10),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "before the arrival that releases the output: the warp that loads the next has waited for the stage of its "
        "gradient, which is released later",
        cases="gradients, wgmma",
        ordinals=(7,),
        kernel="_rows",
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "before the arrival that releases positions: the warp that loads the next has waited for the stage of LSEs, which "
        "is released later, after a barrier of its own",
        cases="gradients, wgmma, in order",
        ordinals=(6,),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.wgmma.fence.aligned",
        "of the late MMA of dq: its operands were written an iteration before, before the fences of scores",
        cases="gradients, wgmma",
        ordinals=(2,),
        kernel="_rows",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.try_wait.parity",
        "of the output: the same warp has waited for the stage of its gradient, which is released later",
        cases="gradients, wgmma",
        ordinals=(6,),
        kernel="_rows",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.try_wait.parity",
        "of positions: the same warp has waited for the stage of LSEs, which is released later",
        cases="gradients, wgmma, in order",
        ordinals=(2,),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.try_wait.parity",
        "of LSEs: consumers have waited for positions, whose arrival comes when all copies before it have landed",
        cases="gradients, wgmma, in order",
        ordinals=(14,),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "llvm.store",
        "of a part's sums: no task of these runs is split. Tasks in test_trees.py and TokenCutsTest.cpp are",
        text="vector<2xf32>, !llvm.ptr<1>",
        cases="gradients",
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "llvm.store",
        "zeros after the last row of a tile: otherwise there is a row of another sequence, which has no weight. It may be "
        "NaN, which test_backward.py tries",
        cases="gradients, wgmma",
        ordinals=(0, 1),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.try_wait.parity",
        "of keys or of values, in a warpgroup without rows, which only releases tiles: it has waited for the others, which "
        "come when all have released those of three tiles before",
        cases="gradients, wgmma",
        ordinals=(12, 13),
        kernel="_rows",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.try_wait.parity",
        "a block of tokens has one task: the only stage of its stationary operands is free",
        cases="gradients, wgmma",
        ordinals=(0, 3),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.mbarrier.arrive",
        "a block of tokens has one task: no warp waits for the release of its stationary operands",
        cases="gradients, wgmma",
        ordinals=(7, 8),
        kernel="_tokens",
    ),
    Survivor(
        "double",
        "nvvm.mbarrier.arrive",
        "the same",
        cases="gradients, wgmma",
        ordinals=(7, 8),
        kernel="_tokens",
    ),
    # Fused, stationary operands have separate clears, and numbers of rows have one barrier.
    Survivor(
        "drop",
        "llvm.store",
        "zeros after the last row of a tile, as above",
        cases="fused",
        ordinals=(2, 3),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.wgmma.fence.aligned",
        "of MMAs whose operands were complete at the previous MMA's fence: dk after dq and, where scores start early, dq "
        "after those",
        cases="fused",
        ordinals=(4, 5),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.wgmma.commit.group.sync.aligned",
        "of scores that start early: they are then in the group of dq, and the wait for it covers them",
        cases="short tiles",
        ordinals=(3,),
        kernel="_tokens",
    ),
    Survivor(
        "drop",
        "nvvm.barrier0",
        "before the loop over rows, which begins with a barrier, or after the last read of a block, which has one task",
        cases="gradients, mma",
        ordinals=(0, 2, 3),
        kernel="_tokens",
    ),
    Survivor(
        "shift",
        "llvm.load",
        "positions of rows decide nothing where every row sees every token",
        cases="gradients, mma",
        ordinals=(1,),
        kernel="_rows",
    ),
    # Quantized stores.
    Survivor(
        "drop",
        "llvm.store",
        "of rows after the eighth: fragments that warps have merged are of 16 rows, and a task of this kernel has 8 at "
        "most, so it is never executed",
        text="!llvm.ptr<1>",
        cases="codes, up to 8 rows",
        ordinals=(8, 9, 11, 13, 15),
        kernel="_rows8",
    ),
    Survivor(
        "drop",
        "llvm.store",
        "the same",
        text="!llvm.ptr<1>",
        cases="small floats, up to 8 rows",
        ordinals=(8, 9, 11, 13, 15),
        kernel="_rows8",
    ),
    Survivor(
        "drop",
        "llvm.store",
        "the same",
        text="!llvm.ptr<1>",
        cases="diffkv, up to 8 rows",
        ordinals=(14, 15, 16, 17, 19, 22, 23, 25),
        kernel="_rows8",
    ),
    # A segment belongs to one region, and goes through the code of both: the code of the other one copies
    # nothing and has no tiles.
    Survivor(
        "drop",
        "nvvm.cp.async.wait.group",
        "of queries, before the second region's tiles: the same thread has waited for them before the first one's, "
        "which have none in such a segment",
        cases="diffkv",
        ordinals=(2,),
    ),
    Survivor(
        "drop",
        "nvvm.barrier0",
        "before the second region's tiles: queries of all threads had landed at the barrier before the first one's",
        cases="diffkv",
        ordinals=(1,),
    ),
    Survivor(
        "drop",
        "nvvm.barrier0",
        "before the exchange, which overlays the first region's keys and values: the threads that read them have since been at "
        "the barrier before the second one's tiles",
        cases="diffkv",
        ordinals=(2,),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "after the first region's tiles: the next copies into their memory come after the barrier before the second "
        "one's tiles, of which this segment has none",
        cases="diffkv",
        ordinals=(1,),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "after the second region's tiles: segments of the first one come before, so the next copies into their memory are "
        "the second one's, after the barrier before the first one's tiles, or the next task's",
        cases="diffkv",
        ordinals=(3,),
    ),
)
