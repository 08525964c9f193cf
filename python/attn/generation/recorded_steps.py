# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of generation that is recorded once: the tensors that it reads and writes, its choice of tokens, and how it
runs.

On a GPU it is a CUDA graph from its third run on. The first two runs are steps as well, without a graph: they make
everything that is made once (compiled code, plans' memory, workspaces of libraries), and nothing has to be undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..cache.capture import record_graph, run_aside
from .sampling import check_sampling

_RUNS_AS_IT_IS = 2
_LOOK_EVERY = 4  # Steps between two copies of the flag; each costs the GPU a copy of a byte.
_LOOKS_AHEAD = 2  # The host is at most so many copies ahead of the GPU, which thus always has steps to run.


@dataclass(frozen=True)
class Choice:
    """How the next token of each sequence is chosen."""

    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    ends: tuple[int, ...] = ()
    """Tokens that end a sequence."""
    pad: int = 0
    """The token after the end."""

    def __post_init__(self):
        check_sampling(self.temperature, self.top_k, self.top_p)

    def choose(self, logits: Tensor) -> Tensor:
        """Choose tokens: `[sequences, vocabulary]` -> i64[sequences]. Waits for nothing."""
        if not self.sample:
            return logits.argmax(1)
        scores = logits.float() / self.temperature
        if 0 < self.top_k < scores.shape[1]:
            least = scores.topk(self.top_k, dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p < 1:
            ordered, places = scores.sort(dim=1, descending=True)
            weights = ordered.softmax(1)
            before = weights.cumsum(1) - weights  # So the likeliest token stays, whatever top_p is.
            ordered = ordered.masked_fill(before >= self.top_p, -torch.inf)
            scores = torch.empty_like(scores).scatter_(1, places, ordered)
        # The first of exponential clocks that run as fast as tokens are likely; multinomial would make the
        # GPU wait for the host.
        weights = scores.softmax(1)
        return (weights / torch.empty_like(weights).exponential_()).argmax(1)

    def ended(self, tokens: Tensor) -> Tensor:
        """Return whether each of i64[sequences] ends its sequence."""
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
        """Its position, without padding."""
        self.out = torch.zeros(sequences, tokens + 1, **like)
        """The tokens chosen so far."""
        self.column = torch.zeros(1, **like)
        """The next column of `out`."""
        self.counts = torch.zeros(sequences, **like)
        """Tokens of each sequence up to its end."""
        self.ended = torch.zeros(sequences, dtype=torch.bool, device=device)
        self.all_ended = torch.zeros(1, dtype=torch.bool, device=device)
        self.mask = torch.ones(sequences, tokens, dtype=torch.bool, device=device)
        """True for columns that are not padding, including columns of later tokens."""
        self.first = torch.zeros(sequences, 1, dtype=torch.int32, device=device)
        """The first column that is not padding."""

    def begin(self, mask: Tensor) -> None:
        """Begin after a prompt was read, with its padding mask, `bool[sequences, columns]`."""
        self.mask.fill_(True)
        self.mask[:, : mask.shape[1]] = mask
        shown = mask.sum(1, keepdim=True)
        self.first.copy_(mask.shape[1] - shown)
        self.position.copy_(shown - 1)
        for tensor in (self.column, self.counts, self.ended, self.all_ended):
            tensor.zero_()

    def accept(self, choice: Choice, logits: Tensor) -> None:
        """Choose the next token of each sequence by `[sequences, vocabulary]`. A sequence that has ended gets padding."""
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
    """A function that launches the same work over the same tensors in every call. The function is not kept: the garbage
    collector would destroy a graph in a cycle, even while another graph is captured."""

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._graph: Any = None
        self._runs = 0

    def run(self, function: Callable[[], object]) -> None:
        """Run the function, the same one each time. On a GPU it waits for nothing once it is recorded."""
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
    """Tells the host some steps later that a flag of the device was set; the device never waits for the host."""

    def __init__(self, flag: Tensor):
        self._flag = flag
        self._on_gpu = flag.is_cuda
        self._free: list[tuple[Tensor, Any]] = []
        for _ in range(_LOOKS_AHEAD + 1 if self._on_gpu else 0):
            self._free.append((torch.zeros(1, dtype=torch.bool, pin_memory=True), torch.cuda.Event()))
        self._sent: deque[tuple[Tensor, Any]] = deque()
        self._steps = 0

    def begin(self) -> None:
        """Forget earlier copies of the flag."""
        self._free.extend(self._sent)
        self._sent.clear()
        self._steps = 0

    def seen(self) -> bool:
        """Return whether the flag was set some steps ago; call it before each step. On the CPU, whether it is set."""
        if not self._on_gpu:
            return bool(self._flag)
        self._steps += 1
        if self._steps % _LOOK_EVERY:
            return False
        found = False
        if len(self._sent) == _LOOKS_AHEAD:
            host, event = self._sent.popleft()
            event.synchronize()  # The steps after it are queued, so the device continues meanwhile.
            found = bool(host)
            self._free.append((host, event))
        host, event = self._free.pop()
        host.copy_(self._flag, non_blocking=True)
        event.record()
        self._sent.append((host, event))
        return found
