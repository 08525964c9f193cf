# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Streaming heads, as in DuoAttention, which see only the first and the last tokens, beside another policy for all
other heads.

(Source: arXiv 2410.10819.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cache.policy import HIGH, NOTHING, PRUNED, Changes, Kept, Policy, Rule, heads_of
from ..errors import SpecError, expected

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Streaming(Policy):
    """Streaming heads keep their sink and recent tokens, HIGH; `policy` decides for all other heads.

    policy        of the other heads; its rows, group and window apply to all
    heads         (layer, KV head) of each streaming head, as zip(*numpy.nonzero(gates.select(sparsity=0.5).classes)) of
                  attn.heads.Gates
    sink, recent  the number of first and of last tokens that a row of a streaming head sees; the last include its own

    Raises SpecError.
    """

    policy: Policy
    heads: Collection[tuple[int, int]]
    sink: int = 64
    recent: int = 256

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Policy):
            raise expected(SpecError, "Streaming(policy)", "another policy, as DiffKV(...)", self.policy)
        for name, least in (("sink", 0), ("recent", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
                nearest = max(value, least) if isinstance(value, int) and value < 2**31 else least
                legal = f"a number of tokens from {least} on"
                raise expected(SpecError, f"Streaming({name})", legal, value, nearest=nearest)
        try:
            heads = frozenset((int(layer), int(head)) for layer, head in self.heads)
        except (TypeError, ValueError):
            raise expected(SpecError, "Streaming(heads)", "pairs (layer, head)", self.heads) from None
        if any(min(pair) < 0 for pair in heads):
            raise expected(SpecError, "Streaming(heads)", "(layer, head) from 0 on", sorted(heads)[0])
        object.__setattr__(self, "heads", heads)

    @property
    def window(self) -> int:
        """The window of the other heads' policy."""
        return self.policy.window

    @property
    def rows(self) -> int | None:
        """The rows of the other heads' policy."""
        return self.policy.rows

    @property
    def group(self) -> str:
        """The group of the other heads' policy."""
        return self.policy.group

    def sees(self, layer: int, head: int) -> tuple[int, int] | None:
        """Implement Policy.sees."""
        return (self.sink, self.recent) if (layer, head) in self.heads else self.policy.sees(layer, head)

    def rule(self) -> Rule | None:
        """Implement Policy.rule: the other heads' rule."""
        return self.policy.rule()

    def named_heads(self) -> set[tuple[int, int]]:
        """Implement Policy.named_heads."""
        return set(self.heads) | self.policy.named_heads()

    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Implement Policy.prompt."""
        import torch

        kept = self.policy.prompt(significance, lengths, heads)
        named = heads_of(self, kept, heads)
        streams = [index for index, head in enumerate(named) if head in self.heads]
        kept.streams = torch.tensor(streams, dtype=torch.int64, device=kept.score.device)
        length = kept.lengths[kept.streams][:, None]
        place = torch.arange(kept.score.shape[1], device=kept.score.device)
        stays = (place < self.sink) | (place >= length - (self.recent - 1))
        level = torch.where(stays & (place < length), HIGH, PRUNED).to(torch.int8)
        kept.level[kept.streams] = level
        kept.score[kept.streams] *= level != PRUNED
        return kept

    def step(self, kept: Kept, significance: Tensor) -> Changes:
        """Implement Policy.step; overrides the decisions of `policy` about the streaming lists."""
        import torch

        assert kept.streams is not None
        streams, before = kept.streams, kept.level[kept.streams]
        changes = self.policy.step(kept, significance)
        length = kept.lengths[streams]
        level = torch.zeros_like(kept.level[streams])
        level[:, : before.shape[1]] = before
        level.scatter_(1, length[:, None] - 1, HIGH)
        leaves = length - self.recent
        leaves = torch.where(leaves >= self.sink, leaves, NOTHING)
        at = leaves.clamp(min=0)[:, None]
        some = (leaves >= 0)[:, None]
        level.scatter_(1, at, level.gather(1, at).masked_fill(some, PRUNED))
        kept.level[streams] = level
        kept.score[streams] *= level != PRUNED
        changes.downgraded[streams] = NOTHING
        changes.pruned[streams] = leaves
        return changes
