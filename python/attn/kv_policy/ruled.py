# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies that are said once, as functions of a few numbers: kernels have them compiled, and PyTorch computes the same.

class Oldest(attn.kv_policy.Ruled):
    window, budget = 64, 1024

    def rank(self, score, rows, position, seen):
        return position

    def decide(self, leaving, least, lowest, state):
        return attn.kv_policy.Decision(least_gone=state.high > self.budget)
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
    Rule,
    begin,
    check_policy,
    check_significance,
    heads_of,
    limits_of,
)
from ..describe.scalars import Program

if TYPE_CHECKING:
    from torch import Tensor


class Ruled(Policy):
    """A policy whose step is two scalar functions, compiled into kernels and evaluated on PyTorch tensors.

    rank(score, rows, position, seen)           a token's rank, from its summed significance, the rows summed, its position,
                                                and the tokens seen so far. The least rank goes first, of equal ranks the
                                                earlier token; NaN counts as infinite
    decide(leaving, least, lowest, state)       the Decision about three candidates: the token that leaves the window, and the
                                                HIGH and the LOW token of least rank that are older than the window
    limits(layer, head)                         the two numbers of `state.limits` for a KV head

    Both functions are traced when a cache is made: use operators and attn.math, no `if`. Later changes of the policy's
    attributes do not change the cache's kernel. `window`, `rows` and `group` are Policy's; all tokens of a prompt stay
    HIGH, unless `prompt` decides otherwise. Raises SpecError, for a function that means nothing in a kernel; PlanError
    for limits that are not numbers.
    """

    window: int
    rows: int | None = None
    group: str = "max"

    @abstractmethod
    def rank(self, score: Any, rows: Any, position: Any, seen: Any) -> Any:
        """Return a token's rank."""

    @abstractmethod
    def decide(self, leaving: Candidate, least: Candidate, lowest: Candidate, state: ListState) -> Decision:
        """Return the decision of a step."""

    def limits(self, layer: int, head: int) -> tuple[float, float]:
        """Return the limits of a KV head."""
        return 0.0, 0.0

    def rule(self) -> Rule:
        """Implement Policy.rule."""
        return Rule(self.window, self.rows or 0, self.limits, self.rank, self.decide)

    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Implement Policy.prompt."""
        import torch

        check_policy(self)
        kept = begin(self, significance, lengths)
        limits = [limits_of(self, self.limits, *head) for head in heads_of(self, kept, heads)]
        kept.limits = torch.tensor(limits, dtype=torch.float64, device=kept.score.device).view(-1, 2)
        return kept

    def step(self, kept: Kept, significance: Tensor) -> Changes:
        """Implement Policy.step."""
        import torch

        check_significance(significance, kept)
        kept.append(significance)
        rule = self.rule()
        places = torch.arange(kept.score.shape[1], device=kept.score.device, dtype=torch.int32)
        seen = kept.lengths.to(torch.int32)
        numbers = [kept.score, kept.queries.clamp(min=1), places.expand_as(kept.queries), seen[:, None]]
        ranks = _evaluate(rule.ranks(), numbers)[0].expand_as(kept.score)
        ranks = ranks.masked_fill(ranks.isnan(), float("inf"))
        at = (kept.lengths - 1 - self.window).clamp(min=NOTHING)
        leaves = (at >= 0) & (_take(kept.level, at) == HIGH)
        leaving = torch.where(leaves, at, NOTHING)
        least, lowest = (
            _least(ranks, (kept.level == level) & (places <= at[:, None])) for level in (HIGH, LOW)
        )
        candidates: list[Tensor] = []
        for position in (leaving, least, lowest):
            exists = position >= 0
            candidates += [_take(ranks, position).masked_fill(~exists, float("inf")), exists]
        counts = [(kept.level == level).sum(1).to(torch.int32) for level in (HIGH, LOW)]
        limits = kept.limits if kept.limits is not None else torch.zeros(kept.lists, 2)
        limits = limits.to(kept.score)
        said = _evaluate(rule.decisions(), [*candidates, *counts, seen, limits[:, 0], limits[:, 1]])
        found = Decision(*(each.expand_as(leaves) for each in said))
        # The first true decision about a HIGH token counts.
        taken, places_of = (
            torch.zeros_like(leaves),
            {LOW: torch.full_like(at, NOTHING), PRUNED: torch.full_like(at, NOTHING)},
        )
        for is_said, position, level in (
            (found.leaving_demoted, leaving, LOW),
            (found.leaving_gone, leaving, PRUNED),
            (found.least_demoted, least, LOW),
            (found.least_gone, least, PRUNED),
        ):
            now = is_said & (position >= 0) & ~taken
            places_of[level] = torch.where(now, position, places_of[level])
            taken = taken | now
        drops = found.lowest_gone & (lowest >= 0) & (places_of[LOW] >= 0)
        changes = Changes(places_of[LOW], torch.where(drops, lowest, places_of[PRUNED]))
        for position, level in ((changes.downgraded, LOW), (changes.pruned, PRUNED)):
            _put(kept.level, position, level)
        _put(kept.score, changes.pruned, 0)
        return changes


def _take(values: Tensor, position: Tensor) -> Tensor:
    """Return the value at each list's position; arbitrary if the position is NOTHING."""
    return values.gather(1, position.clamp(min=0)[:, None])[:, 0]


def _put(values: Tensor, position: Tensor, value: int) -> None:
    at = position.clamp(min=0)[:, None]
    values.scatter_(1, at, values.gather(1, at).masked_fill((position >= 0)[:, None], value))


def _least(ranks: Tensor, among: Tensor) -> Tensor:
    """Return the position of the least rank, of equal ones the first; NOTHING if there is no token."""
    import torch

    masked = ranks.masked_fill(~among, float("inf"))
    is_least = among & (masked == masked.amin(1, keepdim=True))
    return torch.where(is_least.any(1), is_least.to(torch.int8).argmax(1), NOTHING)


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def _evaluate(program: Program, arguments: Sequence[Tensor]) -> list[Tensor]:
    """Compute a program's results on tensors, element by element, in f32, i32 and i1."""
    import torch

    of_name: dict[str, Callable[..., Tensor]] = {
        "arith.addf": operator.add,
        "arith.addi": operator.add,
        "arith.subf": operator.sub,
        "arith.subi": operator.sub,
        "arith.mulf": operator.mul,
        "arith.muli": operator.mul,
        "arith.divf": operator.truediv,
        "arith.negf": operator.neg,
        "arith.divsi": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "arith.divui": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "arith.remsi": torch.fmod,
        "arith.remui": torch.fmod,
        "arith.maximumf": torch.maximum,
        "arith.minimumf": torch.minimum,
        "arith.maxnumf": torch.fmax,
        "arith.minnumf": torch.fmin,
        "arith.maxsi": torch.maximum,
        "arith.minsi": torch.minimum,
        "arith.andi": operator.and_,
        "arith.ori": operator.or_,
        "arith.xori": operator.xor,
        "arith.shli": operator.lshift,
        "arith.shrsi": operator.rshift,
        "arith.select": torch.where,
        "arith.sitofp": lambda a: a.float(),
        "arith.uitofp": lambda a: a.float(),
        "arith.extui": lambda a: a.to(torch.int32),
        "arith.fptosi": lambda a: a.to(torch.int32),
        "math.tanh": torch.tanh,
        "math.exp": torch.exp,
        "math.exp2": torch.exp2,
        "math.log": torch.log,
        "math.log2": torch.log2,
        "math.absf": torch.abs,
        "math.sqrt": torch.sqrt,
        "math.fma": lambda a, b, c: a * b + c,
    }
    kinds = {"f32": torch.float32, "i32": torch.int32, "i1": torch.bool}
    values = [given.to(kinds[kind]) for given, kind in zip(arguments, program.arguments, strict=True)]
    device = values[0].device
    for each in program.instructions:
        operands = [values[index] for index in each.operands]
        if each.op == "arith.constant":
            values.append(torch.tensor(each.detail, dtype=kinds[each.type], device=device))
        elif each.op in ("arith.cmpf", "arith.cmpi"):
            values.append(_COMPARED[each.detail[0][-2:]](*operands))
        else:
            values.append(of_name[each.op](*operands))
    return [values[index] for index in program.results]
