# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over several GPUs: rows of sequences shared by ranks, and caches of which each rank keeps a part.

    split = attn.distributed.split(tokens, ranks, see=attn.causal())
    q, k, v = (attn.distributed.shard(each, split, dim=1) for each in (q, k, v))
    out = attn.distributed.attend(q, k, v, split=split, causal=True)

Processes are those of torch.distributed: NCCL between GPUs, gloo between processes on the host device.
"""

from .attention import attend as attend
from .caches import ShardedCache as ShardedCache
from .caches import ShardedChange as ShardedChange
from .caches import ShardedPlan as ShardedPlan
from .shards import shard as shard
from .shards import unshard as unshard
from .splits import Split as Split
from .splits import split as split
from .splits import split_of_parts as split_of_parts
from .states import Partial as Partial
from .states import gather_heads as gather_heads
from .states import merge as merge
from .states import spread_heads as spread_heads
from .torch_context import patch_sdpa as patch_sdpa

__all__ = [
    "Partial",
    "ShardedCache",
    "ShardedChange",
    "ShardedPlan",
    "Split",
    "attend",
    "gather_heads",
    "merge",
    "patch_sdpa",
    "shard",
    "split",
    "split_of_parts",
    "spread_heads",
    "unshard",
]
