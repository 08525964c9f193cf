# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies of a cache that compresses itself: which tokens each KV head keeps, and in how many bits.

    policy = attn.kv_policy.DiffKV(alpha_high=1.0, alpha_low=0.1, window=64, like="release")
    out, found = attn.attend(q, k, v, causal=True, significance=policy.group, significance_rows=policy.rows)
    kept = policy.prompt(found.transpose(1, 2).flatten(0, 1))     # a list of tokens for each sequence and KV head
    changes = policy.step(kept, significance)                     # of one more token in each list

A policy sees what tokens were worth to the rows so far, their *significance*, and nothing else. It decides for many lists
at a time, each by itself: a list is the tokens of one KV head of one sequence. The decisions are tensors, so that a step
on a GPU waits for nothing.

A policy of your own is a subclass of Ruled, two functions of numbers that caches in PyTorch and kernels both ask
(docs/adding-a-policy.md), or of Policy, where a step wants tensors. `begin` makes its lists of a prompt, `Kept.append` adds a step's tokens, and
NOTHING stands where a step changes no token of a list:

    class Recent(attn.kv_policy.Policy):
        window, rows, group = 64, None, "max"

        def prompt(self, significance, lengths=None, heads=None):
            return attn.kv_policy.begin(self, significance, lengths)

        def step(self, kept, significance):
            kept.append(significance)
            leaves = kept.lengths - 1 - self.window
            pruned = torch.where(leaves >= 0, leaves, attn.kv_policy.NOTHING)
            rows = (pruned >= 0).nonzero()[:, 0]
            kept.level[rows, pruned[rows]], kept.score[rows, pruned[rows]] = attn.kv_policy.PRUNED, 0
            return attn.kv_policy.Changes(torch.full_like(pruned, attn.kv_policy.NOTHING), pruned)

Caches check what the methods of a policy return: PlanError names the class, the method and what was expected.
"""

from ..cache.policy import (
    HIGH,
    LOW,
    NOTHING,
    PRUNED,
    Candidate,
    Changes,
    Decision,
    Kept,
    ListState,
    Policy,
    begin,
    check_significance,
    heads_of,
)
from .diffkv import CalibrationRun, DiffKV
from .h2o import H2O
from .ruled import Ruled
from .snapkv import SnapKV
from .streaming import Streaming

__all__ = [
    "H2O",
    "HIGH",
    "LOW",
    "NOTHING",
    "PRUNED",
    "CalibrationRun",
    "Candidate",
    "Changes",
    "Decision",
    "DiffKV",
    "Kept",
    "ListState",
    "Policy",
    "Ruled",
    "SnapKV",
    "Streaming",
    "begin",
    "check_significance",
    "heads_of",
]
