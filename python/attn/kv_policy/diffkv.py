# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DiffKV's policy: tokens in many bits, in few, or not at all, by what they were worth to the rows so far.

A token's mean significance is compared with two thresholds, alpha_high and alpha_low times what every token would be worth
if all were worth the same (`norm`). The paper and the code that came with it differ, so both are here, by name:

                      like="paper"                                  like="release"
    rows of a prompt  all                                           the last 64
    generation        the token that leaves the window becomes      the HIGH token behind the window that is worth least
                      HIGH, LOW or nothing                          becomes LOW if that is below the high threshold
                      it became HIGH: the HIGH token that is        one became LOW: the LOW token that is worth least
                      worth least becomes LOW below its threshold   goes, below the low threshold
                      it became LOW: the LOW token that is worth
                      least goes, below its threshold

So a step makes at most one token LOW and lets at most one go, and none is ever HIGH again. Of tokens that are worth the
same the earlier one is taken.

(Source: arXiv 2412.03131.)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..cache.policy import (
    GROUPS,
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
    check_choice,
    check_count,
    check_significance,
    harmonic,
    heads_of,
)
from ..compiler.progress import steps_shown
from ..describe.functions import maximum
from ..errors import SpecError, expected

if TYPE_CHECKING:
    from torch import Tensor

RELEASE_ROWS = 64
NORMS = ("inverse_length", "inverse_position", "uniform")
LIKES = ("paper", "release")
MOST_TOKENS = 2**20


@dataclass(frozen=True)
class CalibrationRun:
    """A run over the data that `DiffKV.calibrate` has done. `progress=print` shows a line of text for each."""

    run: int
    """Runs that are done. The first measures the 16-bit cache."""
    most_runs: int
    """Runs at most. An upper bound that holds ends the bisection of its alpha."""
    alpha_high: float
    alpha_low: float
    growth: float
    """How much the loss exceeds that of the 16-bit cache, in nats."""

    def __str__(self) -> str:
        return (
            f"run {self.run} of at most {self.most_runs}: alpha_high {self.alpha_high:.4g}, alpha_low "
            f"{self.alpha_low:.4g}, loss grows by {self.growth:.4g} nats"
        )


@dataclass(frozen=True)
class DiffKV(Policy):
    """Keeps tokens in high precision, in low precision, or not at all.

    alpha_high, alpha_low   thresholds over `norm`, 0 <= alpha_low <= alpha_high. From alpha_high on a token is HIGH, from
                            alpha_low on LOW. alpha_low = 0 prunes nothing
    window                  the last so many tokens are always HIGH
    norm                    the significance of a token if all were equal: "inverse_length": 1 over the tokens so far.
                            "inverse_position": in a prompt 1 over the token's own index, counted from 1, as in the paper;
                            for the first token that is 1, so that it hardly ever stays HIGH. "uniform": the mean, over the
                            rows that were counted, of 1 over the tokens that each sees
    like                    "paper" or "release", see above
    group                   how significance is reduced over a head group: "max", "mean" or "sum"
    overrides               (layer, KV head) -> (alpha_high, alpha_low) of heads that differ

    Raises SpecError.
    """

    alpha_high: float
    alpha_low: float
    window: int = 64
    norm: str = "inverse_length"
    like: str = "paper"
    group: str = "max"
    overrides: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_alphas("", self.alpha_high, self.alpha_low)
        check_count("DiffKV(window)", self.window, MOST_TOKENS, "a number of tokens")
        for name, legal in (("norm", NORMS), ("like", LIKES), ("group", GROUPS)):
            check_choice(f"DiffKV({name})", getattr(self, name), legal)
        if not isinstance(self.overrides, Mapping):
            legal = "a dict of (layer, head) and (alpha_high, alpha_low)"
            raise expected(SpecError, "DiffKV(overrides)", legal, self.overrides)
        for head, alphas in self.overrides.items():
            _check_override(head, alphas)

    @property
    def rows(self) -> int | None:
        """The number of a prompt's last rows that count, as in the paper or the release."""
        return RELEASE_ROWS if self.like == "release" else None

    def alphas(self, layer: int, head: int) -> tuple[float, float]:
        """Return (alpha_high, alpha_low) of a KV head."""
        return self.overrides.get((layer, head), (self.alpha_high, self.alpha_low))

    def rule(self) -> Rule | None:
        """Implement Policy.rule; None for norm="uniform"."""
        if self.norm == "uniform":
            return None
        decide = _decide_like_release if self.like == "release" else _decide_like_paper
        return Rule(self.window, self.rows or 0, self.alphas, _mean, decide)

    def named_heads(self) -> set[tuple[int, int]]:
        """Implement Policy.named_heads."""
        return set(self.overrides)

    @classmethod
    def calibrate(
        cls,
        model: Any,
        data: Tensor | Sequence[Tensor],
        target: float,
        *,
        answers: int = 16,
        most: float = 8.0,
        steps: int = 6,
        high: dict | None = None,
        low: dict | None = None,
        progress: Callable[[CalibrationRun], object] | Literal[False] | None = None,
        **options: object,
    ) -> DiffKV:
        """Find the policy that compresses most with a bounded loss of the model: the largest alpha_high with nothing
        pruned, then the largest alpha_low beside it, with which the loss on data grows by at most `target`.

        model    a decoder of Transformers with attn_implementation="attn", on one device
        data     token ids, int64 [texts, tokens] on that device, or several such. The last `answers` tokens of each text come
                 one at a time, as in generation, over the tokens that the policy keeps; the loss is the mean of their negative
                 log likelihoods, in nats
        target   how much the loss may exceed that of a 16-bit cache that keeps every token: nats, from 0 on
        answers  tokens at the end of each text that are decoded one at a time, from 1 on
        most     upper bound of alpha_high
        steps    bisection steps for each alpha, one run over the data per step and one for the upper bound: alpha_high is found
                 to most / 2^steps, alpha_low to alpha_high / 2^steps
        high, low  how tokens will be stored, as of DiffKVCache
        progress  is called after each run over the data with a `CalibrationRun`. None: a line on standard error where that is
                 a terminal, nothing elsewhere. False: nothing
        options  window, norm, like, group, overrides

        Assumes that the loss grows with the alphas. Raises SpecError, also if all tokens HIGH cost more than the
        target; and the errors of DiffKVCache.
        """
        check_count("calibrate(steps)", steps)
        if isinstance(target, bool) or not isinstance(target, (int, float)) or not 0 <= target < math.inf:
            raise expected(SpecError, "calibrate(target)", "nats from 0 on", target, nearest=0.0)
        _check_alphas("most: ", most, 0)
        cls(0.0, 0.0, **options)  # Options are checked before the model runs.
        from ..adapters.diffkv_loss import Loss

        loss = Loss(model, data, answers)
        formats = {"high": high, "low": low}
        with contextlib.ExitStack() as stack:
            if progress is None:
                progress = stack.enter_context(steps_shown("calibrate"))
            plain, runs, most_runs = loss(cls(0.0, 0.0, **options), high={}, low={}), 1, 2 * steps + 4

            def growth(high: float, low: float) -> float:
                nonlocal runs
                found, runs = loss(cls(high, low, **options), **formats) - plain, runs + 1
                if progress:
                    progress(CalibrationRun(runs, most_runs, high, low, found))
                return found

            least = growth(0.0, 0.0)
            if not least <= target:
                legal = "at least what all tokens HIGH cost"
                raise expected(SpecError, "calibrate(target)", legal, target, nearest=least)
            alphas = largest_alphas(lambda high, low: growth(high, low) <= target, most, steps)
        return cls(*alphas, **options)

    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Implement Policy.prompt: the thresholds decide about tokens before the window."""
        import torch

        kept = begin(self, significance, lengths)
        alphas = [self.alphas(*head) for head in heads_of(self, kept, heads)]
        kept.limits = torch.tensor(alphas, dtype=torch.float64, device=kept.score.device).view(-1, 2)
        places = torch.arange(kept.score.shape[1], device=kept.score.device).expand(kept.score.shape)
        norm = self._norms(kept, kept.queries.long(), places)
        mean, high, low = kept.mean(), kept.limits[:, :1] * norm, kept.limits[:, 1:] * norm
        behind = places < kept.lengths[:, None] - self.window
        level = torch.where(mean >= high, HIGH, torch.where(mean >= low, LOW, PRUNED))
        kept.level = torch.where(behind, level.to(torch.int8), kept.level)
        kept.score[kept.level == PRUNED] = 0
        return kept

    def step(self, kept: Kept, significance: Tensor) -> Changes:
        """Implement Policy.step."""
        check_significance(significance, kept)
        kept.append(significance)
        tokens = _Tokens(self, kept)
        downgraded, pruned = tokens.like_paper() if self.like == "paper" else tokens.like_release()
        _set(kept.level, downgraded, LOW)
        _set(kept.level, pruned, PRUNED)
        _set(kept.score, pruned, 0)
        return Changes(downgraded, pruned)

    def _norms(self, kept: Kept, queries: Tensor, places: Tensor | None = None) -> Tensor:
        """Return norms, float64 [lists, ...], of tokens with so many counted rows. `places`: indices of a prompt's
        tokens."""
        import torch

        lengths = kept.lengths.clamp(min=1)[:, None]
        if self.norm == "uniform":
            table = torch.from_numpy(harmonic(kept.score.shape[1])).to(kept.score.device)
            counted = queries.clamp(min=1)
            return (table[lengths] - table[(lengths - counted).clamp(min=0)]) / counted
        if self.norm == "inverse_position" and places is not None:
            return 1.0 / (places + 1).double()
        return (1.0 / lengths.double()).expand(queries.shape)


def _mean(score: Any, rows: Any, position: Any, seen: Any) -> Any:
    """Return a token's mean significance over its counted rows."""
    return score / rows


def _decide_like_paper(leaving: Candidate, least: Candidate, lowest: Candidate, state: ListState) -> Decision:
    high, low = (limit / maximum(state.seen, 1) for limit in state.limits)
    not_high, not_low = leaving.below(high), leaving.below(low)
    is_low = not_high & ~not_low
    return Decision(
        leaving_demoted=is_low,
        leaving_gone=not_low,
        least_demoted=leaving.exists & ~not_high & least.below(high),
        lowest_gone=is_low & lowest.below(low),
    )


def _decide_like_release(
    leaving: Candidate, least: Candidate, lowest: Candidate, state: ListState
) -> Decision:
    high, low = (limit / maximum(state.seen, 1) for limit in state.limits)
    return Decision(least_demoted=least.below(high), lowest_gone=lowest.below(low))


class _Tokens:
    """The lists of a step, after their new tokens."""

    def __init__(self, policy: DiffKV, kept: Kept):
        import torch

        self.policy, self.kept, self.mean = policy, kept, kept.mean()
        self.candidate = kept.lengths - 1 - policy.window
        self.places = torch.arange(kept.score.shape[1], device=kept.score.device)
        self.behind = self.places <= self.candidate[:, None]

    def least(self, level: int) -> Tensor:
        """Return the position of the least significant token before the window that is kept at `level`, or NOTHING."""
        import torch

        of_level = (self.kept.level == level) & self.behind
        least = self.mean.masked_fill(~of_level, math.inf)
        smallest = least.amin(1, keepdim=True)
        room = len(self.places)
        first = torch.where(of_level & (least == smallest), self.places, room).amin(1)
        return torch.where(first < room, first, NOTHING)

    def below(self, position: Tensor, limit: int) -> Tensor:
        """Whether there is such a token, and its significance is below a threshold: 0 the high one, 1 the low one."""
        at = position.clamp(min=0)[:, None]
        norm = self.policy._norms(self.kept, self.kept.queries.gather(1, at).long())
        threshold = self.kept.limits[:, limit : limit + 1] * norm
        return (position >= 0) & (self.mean.gather(1, at) < threshold)[:, 0]

    def like_paper(self) -> tuple[Tensor, Tensor]:
        """Return the downgraded token and the pruned one."""
        import torch

        candidate = self.candidate.clamp(min=NOTHING)
        not_high, not_low = self.below(candidate, 0), self.below(candidate, 1)
        is_low = not_high & ~not_low
        some = candidate >= 0
        high, low = self.least(HIGH), self.least(LOW)
        victim = some & ~not_high & self.below(high, 0)
        downgraded = torch.where(is_low, candidate, torch.where(victim, high, NOTHING))
        goes = is_low & self.below(low, 1)
        pruned = torch.where(not_low, candidate, torch.where(goes, low, NOTHING))
        return downgraded, pruned

    def like_release(self) -> tuple[Tensor, Tensor]:
        """Return the downgraded token and the pruned one."""
        import torch

        high, low = self.least(HIGH), self.least(LOW)
        victim = self.below(high, 0)
        return torch.where(victim, high, NOTHING), torch.where(victim & self.below(low, 1), low, NOTHING)


def _set(values: Tensor, positions: Tensor, value: int) -> None:
    """Set a value in each list at its position, if there is one."""
    at = positions.clamp(min=0)[:, None]
    before = values.gather(1, at)
    values.scatter_(1, at, before.masked_fill((positions >= 0)[:, None], value))


def largest_alphas(bears: Callable[[float, float], bool], most: float, steps: int) -> tuple[float, float]:
    """Find the largest alpha_high beside alpha_low = 0, up to `most`, then the largest alpha_low beside that, each in
    so many steps. `bears`: whether a model's loss allows both."""
    high = _largest(lambda alpha: bears(alpha, 0.0), most, steps)
    return high, _largest(lambda alpha: bears(high, alpha), high, steps)


def _largest(holds: Callable[[float], bool], most: float, steps: int) -> float:
    """Return the largest number from 0 to `most` for which `holds` is true; it is true for 0."""
    if holds(most):
        return float(most)
    low, high = 0.0, float(most)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _check_alphas(where: str, high: object, low: object) -> None:
    for name, value in (("alpha_high", high), ("alpha_low", low)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            nearest = 0.0 if number and value < 0 else 1.0
            raise expected(SpecError, f"DiffKV({where}{name})", "a number from 0 on", value, nearest=nearest)
    if low > high:
        legal = f"at most alpha_high, {high}: the threshold of low precision is lower"
        raise expected(SpecError, f"DiffKV({where}alpha_low)", legal, low, nearest=high)


def _check_override(head: object, alphas: object) -> None:
    is_pair = isinstance(head, tuple) and len(head) == 2
    if not is_pair or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in head):
        raise expected(SpecError, "DiffKV(overrides)", "keys (layer, head), both from 0 on", head)
    if not isinstance(alphas, (tuple, list)) or len(alphas) != 2:
        raise expected(SpecError, f"DiffKV(overrides[{head}])", "(alpha_high, alpha_low)", alphas)
    _check_alphas(f"overrides[{head}]: ", *alphas)
