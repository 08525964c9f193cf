# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forward passes over rows of any sequences, recorded once for up to so many rows.

The last token of each sequence stays on the device, in a slot that the next step reads its input from. So a step may be
launched before the host knows the tokens of the step before."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy
import torch
from torch import Tensor, nn

from ..adapters.paged_steps import Asked
from ..adapters.planned_pages import PagePlans
from ..adapters.planned_steps import fix_mask
from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import cache_argument
from .decoder_rooms import CacheOfSteps
from .forward_pass import compiled_forward, step_masks
from .recorded_steps import RecordedStep
from .scheduler import Share
from .step_table import StepTable
from .token_choices import Kind, TokenChoices


class RowSteps:
    """Steps of at most `rows` rows of `sequences` sequences of `tokens` tokens."""

    def __init__(
        self,
        model: nn.Module,
        cache: PagedCache,
        asked: Collection[Asked],
        last: Tensor,
        table: StepTable,
        choices: TokenChoices,
        tokens: int,
        rows: int,
        options: dict | None,
    ):
        """Prepare the steps. `last i64[sequences + 1]`: the slots of last tokens; the last slot takes unused results."""
        device, self.rows = last.device, rows
        self._model, self._last, self._sequences = model, last, len(last) - 1
        self._table, self._choices = table, choices
        self._plans = PagePlans(cache, asked, self._sequences, tokens, rows)
        self._of_steps = CacheOfSteps(cache, device)
        self._cache_argument = cache_argument(model, self._of_steps)
        self._mask = torch.ones(rows, 1, dtype=torch.bool, device=device)
        fix_mask(self._mask, self._plans)
        self._like = torch.empty(rows, 1, 0, dtype=model.dtype, device=device)
        self._forward = compiled_forward(model, options)
        self._step = RecordedStep(device)

    def run(self, step: Sequence[Share]) -> Kind:
        """Launch a step, and wait for nothing. It chooses tokens for the shares that choose, in order. Returns the kind
        of the choice. At most UNDER_WAY steps may have results that were not waited for."""
        self._plans.tell([share.request.node for share in step], [share.rows for share in step])
        try:
            host = self._table.begin()
            self._tell(host, step)
            kind = self._choices.tell(host, [share.request for share in step if share.chooses])
            self._table.send(kind.own)
            self._step.run(self._next)
            self._choices.run(kind)
        finally:
            self._plans.ran()
        return kind

    def _tell(self, host: dict[str, numpy.ndarray], step: Sequence[Share]) -> None:
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
        for name, given, unused in (
            ("ids", ids, 0),
            ("positions", positions, 0),
            ("kept", kept, 0),
            ("slots", slots, self._sequences),
        ):
            host[name][: len(given)] = given
            host[name][len(given) :] = unused

    def _next(self) -> None:
        """Run a forward pass: the same launches whatever the tensors hold."""
        table = self._table.on_device
        given, places = table["ids"][: self.rows], table["positions"][: self.rows]
        self._plans.launch()
        ids = torch.where(given < 0, self._last[(-1 - given).clamp(min=0)], given)
        out = self._forward(
            input_ids=ids[None],
            attention_mask=step_masks(self._model, self._like, self._mask, self._of_steps, places[:, None]),
            position_ids=places[None],
            use_cache=True,
            logits_to_keep=table["kept"],
            **self._cache_argument,
        )
        self._choices.logits.copy_(out.logits[0])

    @property
    def recorded(self) -> bool:
        return self._step.recorded


def learn_layers(model: nn.Module, cache: PagedCache) -> tuple[frozenset[Asked], Tensor]:
    """Return the parameters of the layers' attention, and logits [tokens, vocabulary], found by sending two tokens
    through the model into a cache of their own. The pool gets the dtype and sizes of those."""
    probe = cache._beside(model.config, pages=2)
    ids = torch.zeros(1, 2, dtype=torch.int64, device=model.device)
    out = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, **cache_argument(model, probe)
    )
    asked, pages = frozenset(probe._step.planned), probe.pages
    heads = pages.kv_heads
    like = {"dtype": model.dtype, "device": model.device}
    keys = (torch.empty(1, heads, 0, dim, **like) for dim in (pages.head_dim, pages.value_dim))
    cache._begin(0, *keys)
    return asked, out.logits[0]
