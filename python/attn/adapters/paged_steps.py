# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass over a paged cache: writes new keys and values into pages, and attends to all tokens there.

The first layer finds out what all layers share: which tokens are padding, the slots of the new tokens, the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ..cache.batch import CacheBatch
from ..cache.change import CacheChange
from ..errors import PlanError, TensorError
from ..run.kernel import Kernel
from ..run.plan import Plan
from .head_gates import LayerGates
from .rows.padded_calls import padded_kernel
from .transformers_cache import PagedCache, PagedKeys, PagedLayer
from .transformers_config import CACHE


class TokenRows:
    """The rows of a padded batch that are tokens: `counts` of each sequence, from `first` on."""

    def __init__(self, first: numpy.ndarray, counts: numpy.ndarray, rows: int):
        flat = [
            numpy.arange(i * rows + begin, i * rows + begin + count)
            for i, (begin, count) in enumerate(zip(first, counts, strict=True))
        ]
        index = numpy.concatenate(flat)
        self.rows, self.whole, self.index = rows, len(index) == len(counts) * rows, torch.from_numpy(index)

    def take(self, tensor: Tensor) -> Tensor:
        """Reorder [batch, heads, rows, dim] to [tokens, heads, dim], without padding."""
        flat = tensor.transpose(1, 2).reshape(-1, tensor.shape[1], tensor.shape[3])
        return flat if self.whole else flat.index_select(0, self.index.to(flat.device))

    def put(self, out: Tensor, batch: int) -> Tensor:
        """Reorder [tokens, heads, dim] to [batch, rows, heads, dim]; rows of padding are 0."""
        if not self.whole:
            full = out.new_zeros(batch * self.rows, *out.shape[1:])
            full.index_copy_(0, self.index.to(out.device), out)
            out = full
        return out.view(batch, self.rows, *out.shape[1:])


class Asked(NamedTuple):
    """Everything that decides a layer's kernel, beside the cache."""

    q_heads: int
    dtype: torch.dtype
    scale: float
    see: str
    softcap: float
    sinks: bool
    gates: LayerGates | None
    numerics: str | None = None

    def kernel(self, cache: PagedCache, *, planned: bool = False) -> Kernel:
        """Return the kernel over the pages of a cache that holds keys."""
        pages, gates = cache.pages, self.gates
        return padded_kernel(
            self.q_heads,
            pages.kv_heads,
            (pages.head_dim, pages.value_dim),
            self.dtype,
            self.scale,
            self.see,
            self.softcap,
            self.sinks,
            (gates.sink, gates.recent) if gates else (),
            pages.device,
            cache._store,
            planned,
            numerics=self.numerics,
        )


class PagedStep(TokenRows):
    """A forward pass; all layers share it."""

    def __init__(self, cache: PagedCache, spans: Tensor, rows: int):
        table = spans.numpy().reshape(-1, 4)
        first, end = table.T[:2].astype(numpy.int64)
        begin, pages = cache.length, cache.pages
        if cache.length == 0 and not cache.nodes:
            cache.nodes = [pages.add() for _ in range(len(table))]
        if len(table) != len(cache.nodes):
            raise TensorError(
                f"{CACHE}: holds {len(cache.nodes)} sequences, and the batch has {len(table)}; reset() it "
                "before another batch"
            )
        shown = numpy.maximum(first, begin)
        self.counts = numpy.maximum(end - shown, 0)
        for index, node in enumerate(cache.nodes):
            held, wanted = pages.tokens(node), max(int(min(end[index], begin) - first[index]), 0)
            if held != wanted:
                raise TensorError(
                    f"attention_mask[{index}]: shows {wanted} tokens before this step, and the cache holds {held}"
                )
        super().__init__(shown - begin, self.counts, rows)
        # A chunk of a prompt may be all padding for a sequence, or for all of them.
        self.requests = [(node, int(n)) for node, n in zip(cache.nodes, self.counts, strict=True) if n]
        nodes, counts = zip(*self.requests, strict=True) if self.requests else ((), ())
        self.change: CacheChange | None = pages.append(list(nodes), list(counts)) if nodes else None
        self.before = cache.length, cache.shown
        """The cache's length and shown columns before this step, to take it back."""
        cache.length += rows
        cache.shown = list(zip(first.tolist(), end.tolist(), strict=True))
        self.written: set[int] = set()
        self.planned: dict[Asked, tuple[Kernel, Plan] | None] = {}
        """What layers asked; None: their rows attended to each other, in expanded form."""

    @property
    def unfinished(self) -> list[int]:
        """Layers whose keys and values were not written."""
        return [] if self.change is None else self.change.missing


@dataclass
class PlannedPages:
    plan: Plan
    batch: CacheBatch
    step: PagedStep


def _plan(cache: PagedCache, step: PagedStep, kernel: Kernel, classes: tuple[int, ...] | None) -> Plan:
    """Return the plan of all layers with the same kernel and as many heads in each class, updated from step to step."""
    key = kernel, tuple(sorted(classes or ()))
    known = cache._plans.get(key)
    if known is None:
        batch = cache.pages.batch(step.requests, classes=classes)
        known = cache._plans[key] = PlannedPages(kernel.plan(batch), batch, step)
    elif known.step is not step:
        if known.step.requests == step.requests:
            known.batch.update()
        else:
            known.batch = cache.pages.batch(step.requests, classes=classes)
        known.plan.update(known.batch)
        known.step = step
    return known.plan


def attend_pages(
    layer: PagedLayer,
    query: Tensor,
    key: PagedKeys,
    value: Tensor,
    spans: Tensor,
    *,
    scale: float,
    see: str,
    softcap: float,
    sinks: Tensor | None,
    gates: LayerGates | None,
    numerics: str | None = None,
) -> Tensor:
    """Write a layer's new keys and values into its pages, and compute attention over all tokens there. `query [batch,
    q_heads, rows, dim]`; returns [batch, rows, q_heads, value_dim]."""
    batch, q_heads, rows, _ = query.shape
    step = begin_step(layer, key.keys, value, spans)
    if step.change is None:
        return query.new_zeros(batch, rows, q_heads, value.shape[3])
    step.change.write(layer.index, step.take(key.keys).contiguous(), step.take(value).contiguous())
    asked = Asked(q_heads, query.dtype, scale, see, softcap, sinks is not None, gates, numerics)
    out = run_step(layer, step, asked, step.take(query).contiguous(), sinks)
    return step.put(out, batch)


def begin_step(layer: PagedLayer, key: Tensor, value: Tensor, spans: Tensor) -> PagedStep:
    """Return the step of the forward pass, begun by its first layer. `key`, `value`: new ones, [batch, kv_heads, rows,
    dim]."""
    cache = layer.cache
    cache._begin(layer.index, key, value)
    step = cache._step
    if step is None or layer.index in step.written:
        if step is not None and step.unfinished:
            raise PlanError(
                f"{CACHE}: the last forward pass did not reach layers {step.unfinished}: take its tokens back with "
                f"crop({step.before[0]}), or reset() the cache"
            )
        cache._free_dropped()
        step = cache._step = PagedStep(cache, spans, key.shape[2])
    step.written.add(layer.index)
    return step


def run_step(layer: PagedLayer, step: PagedStep, asked: Asked, query: Tensor, sinks: Tensor | None) -> Tensor:
    """Compute attention of a layer over all tokens in its pages. `query`: [tokens, q_heads, dim], contiguous."""
    cache, gates = layer.cache, asked.gates
    planned = step.planned.get(asked)
    if planned is None:
        kernel = asked.kernel(cache)
        plan = _plan(cache, step, kernel, gates.classes if gates else None)
        planned = step.planned[asked] = kernel, plan
    kernel, plan = planned
    extra = {} if sinks is None else {"sink_logits": sinks.float().contiguous()}
    if gates:
        extra["classes"] = gates.classes
    return kernel.run(query, cache.pages.layer(layer.index), plan, **extra)
