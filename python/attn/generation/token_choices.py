# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The choice of tokens after a step's forward pass, recorded for each kind of step.

The forward pass leaves its logits in one tensor, whatever the number of its rows. The choice is work of its own behind
it. There are few kinds of choices, and most steps need the simplest kind: the likeliest tokens. A step pays for draws,
for sorting and for log-probabilities only if a request in it asks for them. A request gets the same tokens in all
kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from .recorded_steps import RecordedStep
from .requests import Request
from .sampling import draw
from .step_table import BANNED, UNDER_WAY, StepTable


class Kind(NamedTuple):
    """The kind of a choice: what some row of it needs."""

    own: bool = False
    """Draws, or tokens that it may not choose yet."""
    sorts: bool = False
    """Draws among the likeliest tokens."""
    logprobs: bool = False


class Chosen(NamedTuple):
    """The results of a step, for each request whose token it chose."""

    tokens: list[int]
    logprobs: list[list[float]] | None
    """Log-probabilities: of the token, then of the likeliest tokens in their order."""
    likeliest: list[list[int]] | None

    def logprobs_of(self, row: int, most: int | None) -> dict[int, float] | None:
        """Return log-probabilities of a row's token and of the `most` likeliest ones; None if none were asked for."""
        if most is None:
            return None
        own, *others = self.logprobs[row]
        found = dict(zip(self.likeliest[row][:most], others, strict=False))
        return found | {self.tokens[row]: own}


class TokenChoices:
    """Chooses the next tokens of up to `sequences` rows."""

    def __init__(self, table: StepTable, last: Tensor, logits: Tensor, most: int):
        """`last i64[sequences + 1]` gets the tokens, by slots. `logits [sequences, vocabulary]` are filled by forward
        passes. `most`: log-probabilities of likeliest tokens."""
        self.logits, self._last, self._table = logits, last, table.on_device
        sequences, vocabulary = logits.shape
        self._most = min(most, vocabulary)
        self._steps: dict[Kind, RecordedStep] = {}
        self._results = (
            torch.zeros(sequences, dtype=torch.int64, device=last.device),
            torch.zeros(sequences, 1 + self._most, dtype=torch.float32, device=last.device),
            torch.zeros(sequences, self._most, dtype=torch.int64, device=last.device),
        )
        on_gpu = last.is_cuda
        self._memory = [
            (
                tuple(torch.zeros_like(each, device="cpu", pin_memory=on_gpu) for each in self._results),
                torch.cuda.Event() if on_gpu else None,
            )
            for _ in range(UNDER_WAY)
        ]
        self._sent = 0

    def tell(self, host: dict[str, numpy.ndarray], requests: Sequence[Request]) -> Kind:
        """Fill the host's arrays for the next tokens of these requests. Returns the kind of their choice."""
        logprobs = any(each.logprobs is not None for each in requests)
        bans = [each.ends if each.chosen < each.least else () for each in requests]
        if not any(bans) and not any(each.sampling.sample for each in requests):
            return Kind(logprobs=logprobs)
        host["numbers"].fill(0)
        host["weights"].fill(1)
        host["bans"].fill(0)
        for row, (request, banned) in enumerate(zip(requests, bans, strict=True)):
            host["numbers"][:, row] = request.sampling.numbers(request.chosen)
            host["weights"][:, row] = request.sampling.weights()
            if banned:
                # They repeat: each entry of the row is a token that it may not be.
                host["banned"][row] = (sorted(banned) * BANNED)[:BANNED]
                host["bans"][row] = 1
        return Kind(True, any(each.sampling.sorts for each in requests), logprobs)

    def run(self, kind: Kind) -> None:
        """Launch the choice after a forward pass. Waits for nothing."""
        if kind not in self._steps:
            self._steps[kind] = RecordedStep(self._last.device)
        self._steps[kind].run(lambda: self._choose(kind))

    def _choose(self, kind: Kind) -> None:
        """Choose: the same launches whatever the tensors hold."""
        table, (chosen, logprobs, likeliest) = self._table, self._results
        logits = self.logits
        if kind.own:
            banned = table["banned"] * table["bans"]
            kept = logits.gather(1, banned)
            logits = logits.scatter(1, banned, kept.masked_fill(table["bans"] > 0, -torch.inf))
        chosen.copy_(logits.argmax(1))
        if kind.own:
            drawn = draw(logits, table["numbers"], table["weights"], kind.sorts)
            chosen.copy_(torch.where(table["numbers"][0] > 0, drawn, chosen))
        if kind.logprobs:
            shares = self.logits.float().log_softmax(1)
            logprobs[:, :1].copy_(shares.gather(1, chosen[:, None]))
            if self._most:
                best = shares.topk(self._most, dim=1)
                logprobs[:, 1:].copy_(best.values)
                likeliest.copy_(best.indices)
        self._last.index_copy_(0, table["slots"], chosen)

    def send(self, kind: Kind) -> Callable[[], Chosen]:
        """Copy the results to the host, in pinned memory; returns a function that waits for them."""
        copies, event = self._memory[self._sent % UNDER_WAY]
        self._sent += 1
        count = len(copies) if kind.logprobs else 1
        for copy, result in zip(copies[:count], self._results, strict=False):
            copy.copy_(result, non_blocking=True)
        if event is not None:
            event.record()

        def wait() -> Chosen:
            if event is not None:
                event.synchronize()
            found: list[Any] = [copy.tolist() for copy in copies[:count]]
            return Chosen(*found, *[None] * (3 - count))

        return wait

    @property
    def recorded(self) -> dict[Kind, bool]:
        """Whether the choice of each kind that was used is recorded."""
        return {kind: step.recorded for kind, step in self._steps.items()}
