# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants that nothing is wrong with, and why."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Survivor:
    mutation: str
    op: str
    reason: str
    text: str = ""  # a part of the operation's text
    cases: str = ""  # a part of the names of the cases that have it
    ordinals: tuple[int, ...] = ()  # among the kernel's operations of that name; none: all of them

    def is_this(self, case, mutant):
        return (
            (self.mutation, self.op) == (mutant["mutation"], mutant["op"])
            and self.text in mutant["text"]
            and self.cases in case.name
            and (not self.ordinals or mutant["ordinal"] in self.ordinals)
        )


SURVIVORS = (
    Survivor(
        "drop",
        "nvvm.griddepcontrol",
        "a hint: the next launch may begin. Without it, it begins when this one has ended",
        text="launch_dependents",
    ),
    Survivor(
        "drop",
        "nvvm.setmaxregister",
        "room for ptxas: without it consumers have the registers of the launch, and spill. What they compute is the same",
        text="increase",
    ),
    Survivor(
        "drop",
        "nvvm.wgmma.fence.aligned",
        "a pair of dots: what the second one takes was written in front of the first one's fence. ptxas gets a fence "
        "for each dot, because it takes a fence for the start of a stage (WgmmaPatterns.cpp)",
        cases="wgmma",
        ordinals=(1,),
    ),
    Survivor(
        "drop",
        "nvvm.bar.warp.sync",
        "a lane of a warp that fetches may come late to the wait for a free slot and miss two phases. It hangs in few of "
        "the schedules that the host device draws; a tree of several tasks in two blocks has found it",
        cases="wgmma",
        ordinals=(0, 1, 3),
    ),
)
