# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""H2O's policy: keep a budget of tokens, and evict the token with the least accumulated attention.

(Source: arXiv 2306.14048.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cache.policy import GROUPS, PRUNED, Candidate, Decision, Kept, ListState, check_choice, check_count
from ..errors import SpecError, expected
from .ruled import Ruled

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class H2O(Ruled):
    """Keeps heavy hitters and the last tokens, HIGH; a step evicts one token if there are more than the budget.

    budget  tokens that a list keeps, including its window
    window  the last so many tokens, which stay
    group   how significance is reduced over a head group: "max", "mean" or "sum"

    Raises SpecError.
    """

    budget: int
    window: int = 64
    group: str = "sum"

    def __post_init__(self) -> None:
        for name in ("budget", "window"):
            check_count(f"H2O({name})", getattr(self, name))
        if self.budget < self.window:
            legal = f"at least the window, {self.window} tokens"
            raise expected(SpecError, "H2O(budget)", legal, self.budget, nearest=self.window)
        check_choice("H2O(group)", self.group, GROUPS)

    def rank(self, score: Any, rows: Any, position: Any, seen: Any) -> Any:
        """Implement Ruled.rank: a token's significance so far."""
        return score

    def decide(self, leaving: Candidate, least: Candidate, lowest: Candidate, state: ListState) -> Decision:
        """Implement Ruled.decide."""
        return Decision(least_gone=state.high > self.budget)

    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Implement Policy.prompt: keeps the budget's heavy hitters, of equal ones the earlier, and the window."""
        import torch

        kept = super().prompt(significance, lengths, heads)
        places = torch.arange(kept.score.shape[1], device=kept.score.device)
        behind = places < kept.lengths[:, None] - self.window
        votes = kept.score.masked_fill(~behind, -math.inf)
        order = votes.sort(dim=1, descending=True, stable=True).indices
        rank = torch.empty_like(order).scatter_(1, order, places.expand(order.shape))
        kept.level[behind & (rank >= self.budget - self.window)] = PRUNED
        kept.score[kept.level == PRUNED] = 0
        return kept
