# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of rows of any sequences, recorded once for up to so many rows, and the host's tables and copies for them.

The last token of each sequence stays on the device, in a slot that the next step reads its input from. So a step may be
launched before the host knows the tokens of the step before. The host writes one table for each step, and copies it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from ..adapters.paged_steps import Asked
from ..adapters.planned_pages import PagePlans
from ..adapters.planned_steps import fix_mask
from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import cache_argument
from .decoder_rooms import PassingLayer
from .forward_pass import compiled_forward, step_masks
from .recorded_steps import Choice, RecordedStep
from .scheduler import Share

_UNDER_WAY = 2  # Steps whose results the host has not read, at most.


class Answers:
    """Copies of the tokens that steps choose, in pinned memory; the host waits for a copy only when it reads it."""

    def __init__(self, sequences: int, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._memory = [
            (
                torch.zeros(sequences, dtype=torch.int64, pin_memory=self._on_gpu),
                torch.cuda.Event() if self._on_gpu else None,
            )
            for _ in range(_UNDER_WAY)
        ]
        self._sent = 0

    def send(self, chosen: Tensor) -> Callable[[], list[int]]:
        """Copy tokens to the host; returns a function that waits for them."""
        host, event = self._memory[self._sent % _UNDER_WAY]
        self._sent += 1
        host.copy_(chosen, non_blocking=True)
        if event is not None:
            event.record()

        def wait() -> list[int]:
            if event is not None:
                event.synchronize()
            return host.tolist()

        return wait


class RowSteps:
    """Steps of at most `rows` rows of `sequences` sequences of `tokens` tokens."""

    def __init__(
        self,
        model: nn.Module,
        cache: PagedCache,
        asked: Collection[Asked],
        last: Tensor,
        sequences: int,
        tokens: int,
        rows: int,
        options: dict | None,
    ):
        """Prepare the steps. `last i64[sequences + 1]`: the slots of last tokens; the last slot takes unused results."""
        device, self.rows = last.device, rows
        self._model, self._last, self._sequences = model, last, sequences
        self._plans = PagePlans(cache, asked, sequences, tokens, rows)
        self._of_steps = Cache(layers=[PassingLayer(device) for _ in cache.layers])
        self._cache_argument = cache_argument(model, self._of_steps)
        self._mask = torch.ones(rows, 1, dtype=torch.bool, device=device)
        fix_mask(self._mask, self._plans)
        self._like = torch.empty(rows, 1, 0, dtype=model.dtype, device=device)
        self._forward = compiled_forward(model, options)
        self._step = RecordedStep(device)
        self._table = torch.zeros(2 * (rows + sequences), dtype=torch.int64, device=device)
        self._chosen = torch.zeros(sequences, dtype=torch.int64, device=device)
        on_gpu = device.type == "cuda"
        self._sent = [
            torch.zeros_like(self._table, device="cpu", pin_memory=on_gpu) for _ in range(_UNDER_WAY)
        ]
        self._runs = 0

    def run(self, step: Sequence[Share], choice: Choice) -> Tensor:
        """Launch a step, and wait for nothing. Returns the tokens that it chooses for the shares that choose, in order.
        At most _UNDER_WAY steps may have results that were not waited for."""
        self._plans.tell([share.request.node for share in step], [share.rows for share in step])
        try:
            self._tell(step)
            self._step.run(lambda: self._next(choice))
        finally:
            self._plans.ran()
        return self._chosen

    def _tell(self, step: Sequence[Share]) -> None:
        ids, positions, kept, slots = [], [], [], []
        for request, rows, chooses in ((each.request, each.rows, each.chooses) for each in step):
            first = request.read
            ids += request.tokens[first : first + rows]
            if first + rows > len(request.tokens):
                ids.append(-1 - request.slot)  # The token was chosen, and the host does not know it yet.
            positions += range(first, first + rows)
            if chooses:
                kept.append(len(ids) - 1)
                slots.append(request.slot)
        host = self._sent[self._runs % _UNDER_WAY]
        self._runs += 1
        rows, sequences = self.rows, self._sequences
        spare, unused = [0] * (rows - len(ids)), sequences - len(kept)
        host.copy_(
            torch.tensor(
                [*ids, *spare, *positions, *spare, *kept, *[0] * unused, *slots, *[sequences] * unused]
            )
        )
        self._table.copy_(host, non_blocking=True)

    def _next(self, choice: Choice) -> None:
        """Run a step: the same launches whatever the tensors hold."""
        given, places, kept, slots = self._table.split([self.rows, self.rows, *[self._sequences] * 2])
        self._plans.launch()
        ids = torch.where(given < 0, self._last[(-1 - given).clamp(min=0)], given)
        out = self._forward(
            input_ids=ids[None],
            attention_mask=step_masks(self._model, self._like, self._mask, self._of_steps, places[:, None]),
            position_ids=places[None],
            use_cache=True,
            logits_to_keep=kept,
            **self._cache_argument,
        )
        self._chosen.copy_(choice.choose(out.logits[0]))
        self._last.index_copy_(0, slots, self._chosen)

    @property
    def recorded(self) -> bool:
        return self._step.recorded


def learn_layers(model: nn.Module, cache: PagedCache) -> frozenset[Asked]:
    """Return the parameters of the layers' attention, found by sending two tokens through them into a cache of their
    own. The pool gets the dtype and sizes of those."""
    kind: dict[str, Any] = {"dtype": cache._dtype, "device": cache._device}
    sizes = {name: size for name, size in cache._sizes.items() if name != "layers"}
    probe = PagedCache(model.config, **(sizes | {"pages": 2}), **kind)
    ids = torch.zeros(1, 2, dtype=torch.int64, device=model.device)
    model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, **cache_argument(model, probe))
    asked, pages = frozenset(probe._step.planned), probe.pages
    heads = pages.kv_heads
    like = {"dtype": model.dtype, "device": model.device}
    keys = (torch.empty(1, heads, 0, dim, **like) for dim in (pages.head_dim, pages.value_dim))
    cache._begin(0, *keys)
    return asked
