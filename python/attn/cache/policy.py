# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface between caches that compress themselves and their policies: the state of token lists, and a step's
changes."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from ..describe.scalars import Program, trace_scalars
from ..errors import PlanError, SpecError, TensorError, closest, expected

if TYPE_CHECKING:
    from torch import Tensor

PRUNED, LOW, HIGH = 0, 1, 2
"""How a token is kept: not at all, in few bits, in many."""

NOTHING = -1
"""Stands for no token instead of a position."""

GROUPS = ("max", "mean", "sum")
"""How the significance of a head group's heads is reduced to one number."""


@dataclass
class Kept:
    """The state of token lists, [lists, room], with capacity for more tokens.

    score     float32: the significance of each token so far, added up. Not of tokens that were pruned
    queries   int32: the number of query rows in that sum, including the token's own
    level     int8: PRUNED, LOW or HIGH; PRUNED also past the last token
    lengths   int64 [lists]: tokens that each list has seen, including pruned ones
    limits    float64 [lists, …]: the limits that the policy compares with; None if it has none
    streams   int64: the lists of streaming heads, if there may be some
    """

    score: Tensor
    queries: Tensor
    level: Tensor
    lengths: Tensor
    limits: Tensor | None = None
    streams: Tensor | None = None

    @property
    def lists(self) -> int:
        """The number of lists."""
        return self.score.shape[0]

    def copy(self) -> Kept:
        """Return a copy that later changes do not affect."""
        tensors = {name: getattr(self, name).clone() for name in ("score", "queries", "level", "lengths")}
        return replace(self, **tensors)

    def counts(self) -> dict[str, Tensor]:
        """Return the number of tokens of each list by how they are kept: int64 [lists] of "high", "low" and "pruned"."""
        high, low = ((self.level == level).sum(1) for level in (HIGH, LOW))
        return {"high": high, "low": low, "pruned": self.lengths - high - low}

    def mean(self) -> Tensor:
        """Return float64 [lists, room]: the average significance of a token to a row."""
        return self.score.double() / self.queries.clamp(min=1)

    def append(self, significance: Tensor) -> None:
        """Append a HIGH token to each list, and add the significance of each of its tokens to the new token's row:
        [lists, tokens], including the new token's. Values past the end of a list, or of a pruned token, are ignored."""
        import torch

        longest = significance.shape[1]
        if longest > self.score.shape[1]:
            more = (0, max(longest, 2 * self.score.shape[1]) - self.score.shape[1])
            self.score, self.queries, self.level = (
                torch.nn.functional.pad(each, more) for each in (self.score, self.queries, self.level)
            )
        self.level.scatter_(1, self.lengths[:, None], HIGH)
        self.lengths += 1
        alive = self.level[:, :longest] != PRUNED
        self.score[:, :longest] += significance * alive
        self.queries[:, :longest] += alive


@dataclass(frozen=True)
class Changes:
    """The decisions of a step, beside that its new tokens are HIGH: positions, int64 [lists], or -1 for none.

    downgraded  the HIGH token that becomes LOW
    pruned      the token that is no longer kept
    """

    downgraded: Tensor
    pruned: Tensor


class Candidate(NamedTuple):
    """A token that a step may change: its `rank`, infinite if there is no token, and whether there is one."""

    rank: Any
    exists: Any

    def below(self, limit: Any) -> Any:
        """Whether there is a token, and its rank is below a limit."""
        return self.exists & (self.rank < limit)


class ListState(NamedTuple):
    """A list after a step's new token: the numbers of its HIGH and LOW tokens and of all tokens seen, and its two
    limits."""

    high: Any
    low: Any
    seen: Any
    limits: tuple[Any, Any]


class Decision(NamedTuple):
    """A step's decision about its candidates, truth values. At most one HIGH token becomes LOW or goes: the first for
    which a value is true. A LOW token goes only if another token becomes LOW."""

    leaving_demoted: Any = False
    leaving_gone: Any = False
    least_demoted: Any = False
    least_gone: Any = False
    lowest_gone: Any = False


@dataclass(frozen=True)
class Rule:
    """Steps of a policy, as a kernel decides them (attn.revise_tokens). Its functions are traced, as score functions
    are.

    window   the last so many tokens of a list stay HIGH
    rows     the number of a prompt's last rows that were counted; 0: all
    limits   of (layer, KV head): two numbers that `decide` is given
    rank     (score, rows, position, seen) -> the rank of a token: from its significance added up, the number of rows in that
             sum, its position, and the tokens so far
    decide   (leaving, least, lowest, state) -> Decision. Candidates: the token that leaves the window, the HIGH token before
             the window of least rank, and the LOW token of least rank; and the ListState
    """

    window: int
    rows: int
    limits: Callable[[int, int], tuple[float, float]]
    rank: Callable[[Any, Any, Any, Any], Any]
    decide: Callable[[Candidate, Candidate, Candidate, ListState], Decision]

    def ranks(self) -> Program:
        """Trace `rank`: of (score f32, rows i32, position i32, seen i32). SpecError."""
        arguments = (("score", "f32"), ("rows", "i32"), ("position", "i32"), ("seen", "i32"))
        return trace_scalars(lambda *each: [self.rank(*each)], arguments, "f32", "rank")

    def decisions(self) -> Program:
        """Trace `decide`: of the candidates, rank f32 and existence i1 each, and (high i32, low i32, seen i32, limits
        f32). SpecError."""
        candidates = [
            (f"{name}_{part}", kind)
            for name in ("leaving", "least", "lowest")
            for part, kind in (("rank", "f32"), ("exists", "i1"))
        ]
        numbers = [("high", "i32"), ("low", "i32"), ("seen", "i32"), ("first", "f32"), ("second", "f32")]

        def decide(a: Any, a_is: Any, b: Any, b_is: Any, c: Any, c_is: Any, *state: Any) -> Decision:
            high, low, seen, first, second = state
            found = self.decide(
                Candidate(a, a_is),
                Candidate(b, b_is),
                Candidate(c, c_is),
                ListState(high, low, seen, (first, second)),
            )
            if not isinstance(found, Decision):
                raise expected(SpecError, "decide", "an attn.kv_policy.Decision(...)", found)
            return found

        return trace_scalars(decide, [*candidates, *numbers], "i1", "decide")


class Policy(ABC):
    """Decides how tokens are kept.

    window  the last so many tokens of a list are always HIGH
    rows    the number of last query rows of a prompt that count for significance; None: all
    group   how significance is reduced over a head group: "max", "mean" or "sum"
    """

    window: int
    rows: int | None
    group: str

    def sees(self, layer: int, head: int) -> tuple[int, int] | None:
        """Return the tokens that a row of a KV head sees: (sink, recent), the first and the last so many tokens,
        including its own. Tokens that it no longer sees are not kept. None: everything that is kept."""
        return None

    def rule(self) -> Rule | None:
        """Return its steps as a rule for a kernel; None if no kernel can decide so."""
        return None

    def named_heads(self) -> set[tuple[int, int]]:
        """Return the (layer, KV head) pairs that it knows by name, which a model must have."""
        return set()

    @abstractmethod
    def prompt(
        self,
        significance: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Kept:
        """Decide about prompts.

        significance  floats [lists, tokens]: of each token, added up over the last `rows` rows that see it, as attend returns
                      it
        lengths       tokens of each list, [lists]; by default all
        heads         (layer, KV head) of each list, if heads differ

        Returns the state of the lists. Raises TensorError.
        """

    @abstractmethod
    def step(self, kept: Kept, significance: Tensor) -> Changes:
        """Append a token to each list, and decide. `significance`: of each list's tokens to the new token's row,
        [lists, tokens], for the longest list and its new token. Changes `kept`. Raises TensorError, before that."""


# --- Checks of a user's policy
# ------------------------------------------------------------------------------------


def check_count(label: str, value: object, most: int | None = None, what: str = "a number") -> None:
    """Raise a SpecError unless the value is a whole number from 1 on."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if number < 1 or (most is not None and number > most):
        legal = f"{what} from 1 " + ("on" if most is None else f"to {most}")
        raise expected(SpecError, label, legal, value, nearest=1 if number < 1 else most)


def check_choice(label: str, value: object, legal: tuple[str, ...]) -> None:
    """Raise a SpecError unless the value is one of these words."""
    if value not in legal:
        raise expected(SpecError, label, f"one of {', '.join(legal)}", value, nearest=closest(value, legal))


def check_policy(policy: object) -> None:
    """Raise a PlanError for an object that is not a policy, or lacks a number that caches read."""
    if not isinstance(policy, Policy):
        raise expected(PlanError, "policy", "one of attn.kv_policy, as DiffKV(...)", policy)
    name = type(policy).__name__
    window, rows, group = (getattr(policy, each, None) for each in ("window", "rows", "group"))
    if isinstance(window, bool) or not isinstance(window, int) or window < 0:
        raise expected(PlanError, f"{name}.window", "a number of tokens from 0 on", window)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise expected(PlanError, f"{name}.rows", "a number of rows from 1 on, or None for all", rows)
    if group not in GROUPS:
        raise expected(PlanError, f"{name}.group", "'max', 'mean' or 'sum'", group)


def check_named_heads(policy: Policy, layers: int, heads: int) -> None:
    """Raise a PlanError for a head that the policy names and a model of so many layers of KV heads does not have."""
    for layer, head in sorted(policy.named_heads()):
        if layer >= layers or head >= heads:
            nearest = min(layer, layers - 1), min(head, heads - 1)
            legal = f"(layer, head) of {layers} layers of {heads} KV heads"
            raise expected(PlanError, "policy", legal, (layer, head), nearest=nearest)


def limits_of(
    policy: Policy, limits: Callable[[int, int], object], layer: int, head: int
) -> tuple[float, float]:
    """Return the result of `limits` for a KV head. PlanError unless it is a pair of numbers of float32."""
    found = limits(layer, head)
    label, legal = f"{type(policy).__name__}.limits({layer}, {head})", "two numbers of float32"
    if not isinstance(found, tuple) or len(found) != 2:
        raise expected(PlanError, label, legal, found)
    for each in found:
        if isinstance(each, bool) or not isinstance(each, (int, float)) or not abs(each) <= 3.4028234e38:
            raise expected(PlanError, label, legal, found)
    return float(found[0]), float(found[1])


def sight_of(policy: Policy, layer: int, head: int) -> tuple[int, int] | None:
    """Return the result of `policy.sees`. PlanError unless it is a pair of sizes or None."""
    found = policy.sees(layer, head)
    pair = isinstance(found, tuple) and len(found) == 2 and all(isinstance(size, int) for size in found)
    if found is None or (pair and found[0] >= 0 and found[1] >= 1):
        return found
    legal = "(sink, recent), numbers of tokens from 0 and from 1 on, or None"
    raise expected(PlanError, f"{type(policy).__name__}.sees({layer}, {head})", legal, found)


def decide_prompt(
    policy: Policy, significance: Tensor, lengths: Tensor, heads: Sequence[tuple[int, int]]
) -> Kept:
    """Return the result of `policy.prompt`. PlanError unless it is a Kept of these lists."""
    kept, name = policy.prompt(significance, lengths, heads), f"{type(policy).__name__}.prompt"
    if not isinstance(kept, Kept):
        raise expected(
            PlanError, name, "an attn.kv_policy.Kept, as begin(policy, significance, lengths) makes", kept
        )
    lists, tokens = significance.shape
    for part, kind in (("score", "float32"), ("queries", "int32"), ("level", "int8")):
        _check_tensor(
            f"{name}: {part}", getattr(kept, part), kind, (lists, max(tokens, 1)), significance, more=True
        )
    _check_tensor(f"{name}: lengths", kept.lengths, "int64", (lists,), significance)
    if significance.device.type == "cpu":
        if kept.lengths.tolist() != lengths.tolist():
            raise expected(
                PlanError,
                f"{name}: lengths",
                f"those of the prompts, {lengths.tolist()}",
                kept.lengths.tolist(),
            )
        if bool(((kept.level < PRUNED) | (kept.level > HIGH)).any()):
            raise PlanError(f"{name}: level: expected PRUNED, LOW or HIGH of each token, got other numbers")
    return kept


def decide_step(policy: Policy, kept: Kept, significance: Tensor) -> Changes:
    """Return the result of `policy.step`. PlanError unless it is Changes of these lists, and the new tokens were
    appended."""
    on_cpu = significance.device.type == "cpu"
    before = kept.lengths.clone() if on_cpu else None
    changes, name = policy.step(kept, significance), f"{type(policy).__name__}.step"
    if not isinstance(changes, Changes):
        raise expected(PlanError, name, "an attn.kv_policy.Changes(downgraded, pruned)", changes)
    for part in ("downgraded", "pruned"):
        _check_tensor(f"{name}: {part}", getattr(changes, part), "int64", (kept.lists,), significance)
    if on_cpu:
        if not bool((kept.lengths == before + 1).all()):
            raise PlanError(
                f"{name}: expected one more token in each list, as kept.append(significance) adds, got other lengths"
            )
        for part in ("downgraded", "pruned"):
            positions = getattr(changes, part)
            wrong = ((positions < NOTHING) | (positions >= kept.lengths)).nonzero()
            if len(wrong):
                at = int(wrong[0])
                legal = f"a position from 0 to {int(kept.lengths[at]) - 1}, or NOTHING"
                raise expected(PlanError, f"{name}: {part}[{at}]", legal, int(positions[at]))
    return changes


def _check_tensor(
    name: str, given: object, dtype: str, shape: tuple[int, ...], like: Tensor, *, more: bool = False
) -> None:
    """Raise a PlanError unless a tensor has this dtype, shape and device. `more`: the last extent may be larger."""
    import torch

    fits = (
        isinstance(given, torch.Tensor)
        and str(given.dtype) == f"torch.{dtype}"
        and given.device == like.device
    )
    found = tuple(given.shape) if fits else ()
    if (
        not fits
        or (found[:-1] != shape[:-1] or len(found) != len(shape))
        or (found[-1] < shape[-1] if more else found != shape)
    ):
        legal = f"{dtype} {list(shape)} on {like.device}" + (", or with room for more tokens" if more else "")
        got = (
            f"{given.dtype} {list(given.shape)} on {given.device}"
            if isinstance(given, torch.Tensor)
            else given
        )
        raise PlanError(f"{name}: expected {legal}, got {got}")


# --- Shared by policies
# -------------------------------------------------------------------------------------------


def begin(policy: Policy, significance: Tensor, lengths: Sequence[int] | Tensor | None = None) -> Kept:
    """Return the lists of prompts, every token HIGH; `Policy.prompt` begins with it. Arguments as of `Policy.prompt`.
    Raises TensorError."""
    import torch

    check_significance(significance)
    lists, room = significance.shape
    device = significance.device
    if lengths is None:
        lengths = torch.full((lists,), room)
    lengths = torch.as_tensor(lengths, dtype=torch.int64, device=device).clone()
    if lengths.shape != (lists,):
        raise expected(TensorError, "lengths", f"a number for each of {lists} lists", list(lengths.shape))
    wrong = ((lengths < 0) | (lengths > room)).nonzero()
    if len(wrong):
        at = int(wrong[0])
        got = int(lengths[at])
        raise expected(
            TensorError, f"lengths[{at}]", f"from 0 to {room} tokens", got, nearest=min(max(got, 0), room)
        )
    if not room:
        significance = significance.new_zeros(lists, 1)
    place = torch.arange(max(room, 1), device=device)
    inside = place < lengths[:, None]
    queries = (lengths[:, None] - place).clamp(min=0)
    if policy.rows is not None:
        queries = queries.clamp(max=policy.rows)
    return Kept(
        score=torch.where(inside, significance.float(), 0),
        queries=queries.to(torch.int32),
        level=torch.where(inside, HIGH, PRUNED).to(torch.int8),
        lengths=lengths,
    )


def heads_of(policy: Policy, kept: Kept, heads: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    """Return (layer, KV head) of each list. TensorError if the policy knows heads by name, and `heads` is not given."""
    if heads is None and not policy.named_heads():
        return [(0, 0)] * kept.lists
    if heads is None or len(heads) != kept.lists:
        given = None if heads is None else len(heads)
        raise expected(TensorError, "heads", f"(layer, head) of each of {kept.lists} lists", given)
    return [(int(layer), int(head)) for layer, head in heads]


def check_significance(significance: Any, kept: Kept | None = None) -> None:
    """Raise a TensorError unless this is the significance of a prompt, or of one more token of these lists. Values are
    checked on a CPU only, which makes no device wait."""
    import torch

    if not isinstance(significance, torch.Tensor) or not significance.is_floating_point():
        raise expected(TensorError, "significance", "a tensor of floats [lists, tokens]", significance)
    if significance.ndim != 2:
        raise expected(TensorError, "significance", "[lists, tokens]", list(significance.shape))
    on_cpu = significance.device.type == "cpu"
    if kept is not None:
        if significance.shape[0] != kept.lists or significance.device != kept.score.device:
            legal = f"{kept.lists} lists on {kept.score.device}"
            got = f"{significance.shape[0]} on {significance.device}"
            raise TensorError(f"significance: expected {legal}, got {got}")
        needed = int(kept.lengths.max()) + 1 if on_cpu and kept.lists else 0
        if significance.shape[1] < needed:
            legal = f"at least {needed} tokens, the longest list and the new token"
            raise expected(TensorError, "significance", legal, significance.shape[1], nearest=needed)
    if on_cpu and not bool((significance >= 0).all() & significance.isfinite().all()):
        raise TensorError("significance: expected finite numbers from 0 on, got others")


@functools.lru_cache(maxsize=8)
def _harmonic(terms: int) -> numpy.ndarray:
    return numpy.concatenate([[0.0], numpy.cumsum(1.0 / numpy.arange(1, terms + 1))])


def harmonic(longest: int) -> numpy.ndarray:
    """Return float64: 1 + 1/2 + ... + 1/n at index n, up to `longest` at least."""
    return _harmonic(1 << max(longest, 1).bit_length())
