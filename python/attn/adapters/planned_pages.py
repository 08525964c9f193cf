# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over a paged cache, planned on the device: rows of any sequences, the same launches in every step.

Only the host knows which pages a sequence has. It tells the device before each step (`PagePlans.tell`), by a copy into
tables with fixed addresses (cache/steps.py). A launch makes the plan from them, once for all layers that see alike.
Each layer writes its new keys and values into pages and attends to all tokens there.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..cache.steps import CacheSteps
from ..run.device_plan import DevicePlan, blocks_on
from .planned_steps import LayerKind, PlannedStep

if TYPE_CHECKING:
    from .paged_steps import Asked
    from .transformers_cache import PagedCache


class _PagePlan:
    """The plan of the layers of a model that see alike."""

    def __init__(self, cache: PagedCache, asked: Asked, sequences: int, tokens: int, rows: int):
        self.asked, self.pages = asked, cache.pages
        self.kernel = asked.kernel(cache, planned=True)
        sizes = {
            "sequences": sequences,
            "rows": rows,
            "tokens": tokens,
            "blocks": blocks_on(cache.pages.device),
        }
        self.steps: CacheSteps = cache.pages.steps(self.kernel, **sizes)
        self.writer = self.steps
        """The tables that hold the slots of new tokens, for all layers."""
        self.plan: DevicePlan | None = None
        self.handle = f"pages {next(_numbers)}"
        _living[self.handle] = self


_numbers = itertools.count(1)
_living: weakref.WeakValueDictionary[str, _PagePlan] = weakref.WeakValueDictionary()
"""Plans by the names that masks and compiled code use. The owner of recorded steps keeps them alive, and with them the
pages."""


class PagePlans:
    """The plans of steps of up to `rows` rows, by default one for each of `sequences` sequences of up to `tokens`
    tokens. The layers are as the prompt found them: layers that see alike do not differ otherwise, and none has head
    gates (`plannable`)."""

    def __init__(
        self, cache: PagedCache, asked: Collection[Asked], sequences: int, tokens: int, rows: int = 0
    ):
        self.asked = frozenset(asked)
        plans = [_PagePlan(cache, each, sequences, tokens, rows or sequences) for each in asked]
        self._plans = {plan.asked.see: plan for plan in plans}
        self._writer = plans[0].steps
        for plan in plans:
            plan.writer = self._writer

    @staticmethod
    def plannable(asked: Collection[Asked]) -> bool:
        """Whether steps of such layers can be planned."""
        alike = {each.see for each in asked}
        return len(alike) == len(asked) and all(each.gates is None for each in asked)

    def tell(self, nodes: Sequence[int], counts: Sequence[int] | None = None) -> None:
        """Prepare the next step: new tokens of leaves of the cache, one of each unless `counts` says how many. Their
        rows see them and all tokens before them. Copies the tables, in the stream's order, and waits for nothing.
        OutOfPages changes nothing."""
        self._writer.append(nodes, 1 if counts is None else counts)
        requests = nodes if counts is None else list(zip(nodes, counts, strict=True))
        for plan in self._plans.values():
            plan.steps.update(requests)

    def ran(self) -> None:
        """Declare the step launched; or that it will not be launched, if it failed."""
        self._writer.ran()

    def launch(self) -> None:
        """Make the plans, for `attend_paged_step` of all layers."""
        for plan in self._plans.values():
            plan.plan = plan.steps.plan()

    def step(self, see: str) -> PlannedStep | None:
        """Return the step of layers that see so, for masks; None if the prompt had no such layers."""
        plan = self._plans.get(see)
        if plan is None:
            return None
        tables: dict[str, Any] = plan.steps.tables
        return PlannedStep(plan.handle, tables["kv.lengths"])


def fits_pages(handle: str, kind: LayerKind, see: str, sinks: bool) -> bool:
    """Whether the plans of that name serve such layers."""
    plan = _living[handle]
    pages, asked = plan.pages, plan.asked
    held = asked.q_heads, pages.kv_heads, pages.head_dim, pages.value_dim
    known = LayerKind(*held, asked.dtype, asked.scale, asked.softcap, asked.numerics), asked.see
    return (*known, asked.sinks) == (kind, see, sinks)


def dtype_of_pages(handle: str) -> torch.dtype:
    """Return the dtype of queries of the plans of that name."""
    return _living[handle].asked.dtype


def attend_paged_step(
    q: Tensor, k: Tensor, v: Tensor | None, sink_logits: Tensor | None, handle: str, layer: int
) -> Tensor:
    """Compute attention of a layer: `q [rows, q_heads, dim]`, new keys and values `[rows, kv_heads, dim]` (of latents no
    values), `sink_logits f32[q_heads]`, all contiguous. Returns `[rows, q_heads, value_dim]`."""
    plan = _living[handle]
    plan.writer.write(layer, k, v)
    extra = {} if sink_logits is None else {"sink_logits": sink_logits}
    return plan.kernel.run(q, plan.pages.layer(layer), plan.plan, **extra)
