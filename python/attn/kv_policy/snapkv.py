# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SnapKV's policy: keep the prompt tokens that its last rows attended to, and their neighbours; evict nothing after the prompt.

(Source: arXiv 2404.14469.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cache.policy import (
    GROUPS,
    NOTHING,
    PRUNED,
    Changes,
    Decision,
    Kept,
    Policy,
    Rule,
    begin,
    check_choice,
    check_count,
    check_significance,
)
from ..errors import SpecError, expected

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SnapKV(Policy):
    """Keeps a set of each prompt's tokens, HIGH; the prompt's other tokens are pruned. Later tokens are all kept.

    budget  tokens that a list keeps of a prompt, including its window
    window  the last so many tokens, which are kept and whose rows choose the others
    kernel  the number of neighbours that share the largest significance among them, odd; 1: none
    group   how significance is reduced over a head group: "max", "mean" or "sum"

    Raises SpecError.
    """

    budget: int
    window: int = 32
    kernel: int = 7
    group: str = "mean"

    def __post_init__(self) -> None:
        for name in ("budget", "window", "kernel"):
            check_count(f"SnapKV({name})", getattr(self, name))
        if self.budget < self.window:
            legal = f"at least the window, {self.window} tokens"
            raise expected(SpecError, "SnapKV(budget)", legal, self.budget, nearest=self.window)
        if self.kernel % 2 == 0:
            nearest = f"{self.kernel - 1} or {self.kernel + 1}"
            raise expected(SpecError, "SnapKV(kernel)", "an odd number", self.kernel, nearest=nearest)
        check_choice("SnapKV(group)", self.group, GROUPS)

    @property
    def rows(self) -> int:
        """The number of a prompt's last rows that count: the window's."""
        return self.window

    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Implement Policy.prompt; all heads are alike."""
        import torch

        kept = begin(self, significance, lengths)
        places = torch.arange(kept.score.shape[1], device=kept.score.device)
        behind = places < kept.lengths[:, None] - self.window
        votes = kept.score.masked_fill(~behind, -math.inf)
        votes = torch.nn.functional.max_pool1d(votes[:, None], self.kernel, 1, self.kernel // 2)[:, 0]
        votes = votes.masked_fill(~behind, -math.inf)
        order = votes.sort(dim=1, descending=True, stable=True).indices
        rank = torch.empty_like(order).scatter_(1, order, places.expand(order.shape))
        kept.level[behind & (rank >= self.budget - self.window)] = PRUNED
        kept.score[kept.level == PRUNED] = 0
        return kept

    def rule(self) -> Rule:
        """Implement Policy.rule."""
        return Rule(
            self.window,
            self.rows,
            lambda layer, head: (0.0, 0.0),
            lambda score, rows, position, seen: score,
            lambda leaving, least, lowest, state: Decision(),
        )

    def step(self, kept: Kept, significance: Tensor) -> Changes:
        """Implement Policy.step; changes nothing."""
        import torch

        check_significance(significance, kept)
        kept.append(significance)
        nothing = torch.full_like(kept.lengths, NOTHING)
        return Changes(nothing, nothing.clone())
