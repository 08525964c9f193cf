# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over a paged cache, planned on the device: rows of whatever sequences, the same launches in every step.

Which pages a sequence has is known on the host alone. So it says so before each step (`PagePlans.tell`), which is a copy
into tables that stay where they are (cache/steps.py); a launch makes the plan of them, once for all layers that see alike,
and each layer writes its new keys and values into pages and attends to all that is there.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..cache.steps import CacheSteps
from ..run.device_plan import DevicePlan
from .planned_steps import LayerKind, PlannedStep

if TYPE_CHECKING:
    from .paged_steps import Asked
    from .transformers_cache import PagedCache


class _PagePlan:
    """Of the layers of a model that see alike."""

    def __init__(self, cache: PagedCache, asked: Asked, sequences: int, tokens: int, rows: int):
        self.asked, self.pages = asked, cache.pages
        self.kernel = asked.kernel(cache, planned=True)
        self.steps: CacheSteps = cache.pages.steps(self.kernel, sequences=sequences, rows=rows, tokens=tokens)
        self.writer = self.steps
        """Whose tables say where new tokens go, in all layers."""
        self.plan: DevicePlan | None = None
        self.handle = f"pages {next(_numbers)}"
        _living[self.handle] = self


_numbers = itertools.count(1)
_living: weakref.WeakValueDictionary[str, _PagePlan] = weakref.WeakValueDictionary()
"""By what masks and compiled code call them. Whoever records steps keeps them, and with them the pages."""


class PagePlans:
    """Of the steps of up to `rows` rows, by default one for each of `sequences` sequences of up to `tokens` tokens, for layers as
    a prompt found them: no two that see alike may differ otherwise, and none has head gates (`plannable`)."""

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
        """Whether layers are such ones."""
        alike = {each.see for each in asked}
        return len(alike) == len(asked) and all(each.gates is None for each in asked)

    def tell(self, nodes: Sequence[int], counts: Sequence[int] | None = None) -> None:
        """The next step: new tokens of leaves of the cache, one of each unless `counts` says how many, whose rows see them and all
        before them. Copies the tables, in the stream's order, and waits for nothing. OutOfPages, and then nothing has changed."""
        self._writer.append(nodes, 1 if counts is None else counts)
        requests = nodes if counts is None else list(zip(nodes, counts, strict=True))
        for plan in self._plans.values():
            plan.steps.update(requests)

    def ran(self) -> None:
        """That the step was launched; and that it will not be, where it failed."""
        self._writer.ran()

    def launch(self) -> None:
        """Makes the plans, for `attend_paged_step` of all layers."""
        for plan in self._plans.values():
            plan.plan = plan.steps.plan()

    def step(self, see: str) -> PlannedStep | None:
        """For masks; None of layers that the prompt did not go through."""
        plan = self._plans.get(see)
        if plan is None:
            return None
        tables: dict[str, Any] = plan.steps.tables
        return PlannedStep(plan.handle, tables["kv.lengths"])


def fits_pages(handle: str, kind: LayerKind, see: str, sinks: bool) -> bool:
    """Whether the plans of that name are for such layers."""
    plan = _living[handle]
    pages, asked = plan.pages, plan.asked
    held = asked.q_heads, pages.kv_heads, pages.head_dim, pages.value_dim
    known = LayerKind(*held, asked.dtype, asked.scale, asked.softcap), asked.see
    return (*known, asked.sinks) == (kind, see, sinks)


def attend_paged_step(
    q: Tensor, k: Tensor, v: Tensor, sink_logits: Tensor | None, handle: str, layer: int
) -> Tensor:
    """`q [rows, q_heads, dim]`, new keys and values `[rows, kv_heads, dim]`, `sink_logits f32[q_heads]`, all contiguous:
    `[rows, q_heads, value_dim]` of a layer."""
    plan = _living[handle]
    plan.writer.write(layer, k, v)
    extra = {} if sink_logits is None else {"sink_logits": sink_logits}
    return plan.kernel.run(q, plan.pages.layer(layer), plan.plan, **extra)
