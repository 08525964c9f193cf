# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of generation that is recorded once: what it reads and writes, which token it chooses, and how it runs.

On a GPU it is a CUDA graph from its third run on. The first two are steps as well, run as they are: whatever is made
once (compiled code, plans' memory, workspaces of libraries) is made in them, and nothing has to be undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..cache.capture import record_graph, run_aside
from ..errors import PlanError, expected

_RUNS_AS_IT_IS = 2
_LOOK_EVERY = 4  # steps; a look costs the GPU a copy of a byte
_LOOKS_AHEAD = 2  # the host is at most so many looks ahead of the GPU, which thus always has steps to do


@dataclass(frozen=True)
class Choice:
    """What decides the next token of each sequence."""

    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    ends: tuple[int, ...] = ()
    """Tokens behind which a sequence has ended."""
    pad: int = 0
    """What it gets from there on."""

    def __post_init__(self):
        if not self.temperature > 0:
            hint = "Without do_sample the likeliest token is chosen"
            raise expected(PlanError, "temperature", "more than 0", self.temperature, hint=hint)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise expected(PlanError, "top_k", "0 (all tokens) or a number of tokens", self.top_k, nearest=0)
        if not 0 < self.top_p <= 1:
            raise expected(PlanError, "top_p", "more than 0, at most 1", self.top_p, nearest=1.0)

    def choose(self, logits: Tensor) -> Tensor:
        """`[sequences, vocabulary]` -> i64[sequences]. Waits for nothing."""
        if not self.sample:
            return logits.argmax(1)
        scores = logits.float() / self.temperature
        if 0 < self.top_k < scores.shape[1]:
            least = scores.topk(self.top_k, dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p < 1:
            ordered, places = scores.sort(dim=1, descending=True)
            weights = ordered.softmax(1)
            before = weights.cumsum(1) - weights  # so the likeliest one stays, whatever top_p is
            ordered = ordered.masked_fill(before >= self.top_p, -torch.inf)
            scores = torch.empty_like(scores).scatter_(1, places, ordered)
        # The first of exponential clocks that run as fast as tokens are likely; multinomial would ask the host.
        weights = scores.softmax(1)
        return (weights / torch.empty_like(weights).exponential_()).argmax(1)

    def ended(self, tokens: Tensor) -> Tensor:
        """Whether each of i64[sequences] ends its sequence."""
        found = torch.zeros_like(tokens, dtype=torch.bool)
        for end in self.ends:
            found = found | (tokens == end)
        return found


class StepState:
    """Tensors at fixed addresses, for `sequences` of at most `tokens` tokens on a device."""

    def __init__(self, sequences: int, tokens: int, device: torch.device):
        like: dict[str, Any] = {"device": device, "dtype": torch.int64}
        self.token = torch.zeros(sequences, 1, **like)
        """The last token of each sequence, whose keys are not written yet."""
        self.position = torch.zeros(sequences, 1, **like)
        """Its position; padding is not counted."""
        self.out = torch.zeros(sequences, tokens + 1, **like)
        """What was chosen so far."""
        self.column = torch.zeros(1, **like)
        """Of `out`, that comes next."""
        self.counts = torch.zeros(sequences, **like)
        """Tokens of each sequence up to its end."""
        self.ended = torch.zeros(sequences, dtype=torch.bool, device=device)
        self.all_ended = torch.zeros(1, dtype=torch.bool, device=device)
        self.mask = torch.ones(sequences, tokens, dtype=torch.bool, device=device)
        """Which columns are not padding; those of tokens to come are not."""
        self.first = torch.zeros(sequences, 1, dtype=torch.int32, device=device)
        """The first of those."""

    def begin(self, mask: Tensor) -> None:
        """A prompt whose padding is hidden, `bool[sequences, columns]`, was read."""
        self.mask.fill_(True)
        self.mask[:, : mask.shape[1]] = mask
        shown = mask.sum(1, keepdim=True)
        self.first.copy_(mask.shape[1] - shown)
        self.position.copy_(shown - 1)
        for tensor in (self.column, self.counts, self.ended, self.all_ended):
            tensor.zero_()

    def accept(self, choice: Choice, logits: Tensor) -> None:
        """The next token of each sequence, by `[sequences, vocabulary]`: what has ended gets padding."""
        chosen = choice.choose(logits).masked_fill(self.ended, choice.pad)
        self.out.index_copy_(1, self.column, chosen[:, None])
        self.token.copy_(chosen[:, None])
        self.column.add_(1)
        self.position.add_(1)
        self.counts.add_(~self.ended)
        if choice.ends:
            self.ended.logical_or_(choice.ended(chosen))
            self.all_ended.copy_(self.ended.all())


class RecordedStep:
    """A function that launches the same work over the same tensors whenever it is called. It is not kept: a graph in a cycle
    would be destroyed by the garbage collector, whoever captures another one at that moment."""

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._graph: Any = None
        self._runs = 0

    def run(self, function: Callable[[], object]) -> None:
        """The same function each time. On a GPU it waits for nothing once it is recorded."""
        if self._graph is None and self._on_gpu and self._runs >= _RUNS_AS_IT_IS:
            self._graph, _ = record_graph(torch, function)
        if self._graph is not None:
            self._graph.replay()
        elif self._on_gpu:
            run_aside(torch, function)
        else:
            function()
        self._runs += 1

    @property
    def recorded(self) -> bool:
        return self._graph is not None


class Lookout:
    """Tells the host that a flag of the device was set, some steps later: the device never waits for it to look."""

    def __init__(self, flag: Tensor):
        self._flag = flag
        self._on_gpu = flag.is_cuda
        self._free: list[tuple[Tensor, Any]] = []
        for _ in range(_LOOKS_AHEAD + 1 if self._on_gpu else 0):
            self._free.append((torch.zeros(1, dtype=torch.bool, pin_memory=True), torch.cuda.Event()))
        self._sent: deque[tuple[Tensor, Any]] = deque()
        self._steps = 0

    def begin(self) -> None:
        """Forgets what was sent before."""
        self._free.extend(self._sent)
        self._sent.clear()
        self._steps = 0

    def seen(self) -> bool:
        """To be asked before each step: whether the flag was set a while ago. On the CPU, whether it is set."""
        if not self._on_gpu:
            return bool(self._flag)
        self._steps += 1
        if self._steps % _LOOK_EVERY:
            return False
        found = False
        if len(self._sent) == _LOOKS_AHEAD:
            host, event = self._sent.popleft()
            event.synchronize()  # the steps behind it are queued, so the device goes on meanwhile
            found = bool(host)
            self._free.append((host, event))
        host, event = self._free.pop()
        host.copy_(self._flag, non_blocking=True)
        event.record()
        self._sent.append((host, event))
        return found
