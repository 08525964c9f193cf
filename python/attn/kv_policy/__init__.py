# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies of a cache that compresses itself: which tokens each KV head keeps, and in how many bits.

    policy = attn.kv_policy.DiffKV(alpha_high=1.0, alpha_low=0.1, window=64, like="release")
    out, found = attn.attend(q, k, v, causal=True, significance=policy.group, significance_rows=policy.rows)
    kept = policy.prompt(found.transpose(1, 2).flatten(0, 1))     # a list of tokens for each sequence and KV head
    changes = policy.step(kept, significance)                     # of one more token in each list

A policy sees what tokens were worth to the rows so far, their *significance*, and nothing else. It decides for many lists
at a time, each by itself: a list is the tokens of one KV head of one sequence. The decisions are tensors, so that a step
on a GPU waits for nothing.
"""

from ..cache.policy import HIGH, LOW, PRUNED, Changes, Kept, Policy
from .diffkv import DiffKV
from .snapkv import SnapKV
from .streaming import Streaming

__all__ = ["HIGH", "LOW", "PRUNED", "Changes", "DiffKV", "Kept", "Policy", "SnapKV", "Streaming"]
