# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass over a cache whose tokens ranks share.

While a prompt is read by parts, rows are those of a rank's chunks: their keys and values go into its pages, and they
attend to those of all ranks (attn.distributed.attend). Otherwise rows are the same on every rank: each writes its own
tokens, attends to these, and results are merged (attn.distributed.ShardedPlan).
"""

from __future__ import annotations

from typing import Any

import numpy
from torch import Tensor

from ..describe.visibility import read_visibility
from ..distributed.attention import attend
from ..distributed.steps import with_sinks
from ..errors import PlanError, TensorError
from .head_gates import LayerGates
from .paged_steps import TokenRows
from .rows.padded_calls import padded_kernel
from .sharded_cache import Prompt, ShardedCache, ShardedLayer
from .transformers_cache import PagedKeys
from .transformers_config import CACHE


class ShardedStep(TokenRows):
    """A forward pass whose rows every rank has; all layers share it."""

    def __init__(self, cache: ShardedCache, spans: Tensor, rows: int):
        table = spans.numpy().reshape(-1, 4)
        first, end = table.T[:2].astype(numpy.int64)
        begin, pages = cache.length, cache.pages
        known = cache.shown or [(0, 0)] * len(table)
        if len(table) != len(known):
            raise TensorError(
                f"{CACHE}: holds {len(known)} sequences, and the batch has {len(table)}; reset() it before another batch"
            )
        shown = numpy.maximum(first, begin)
        counts = numpy.maximum(end - shown, 0)
        for index in range(len(table)):
            held, wanted = pages.tokens(index), max(int(min(end[index], begin) - first[index]), 0)
            if held != wanted:
                raise TensorError(
                    f"attention_mask[{index}]: shows {wanted} tokens before this step, and the cache holds {held}"
                )
        super().__init__(shown - begin, counts, rows)
        self.requests = [(index, int(count)) for index, count in enumerate(counts) if count]
        sequences, tokens = zip(*self.requests, strict=True) if self.requests else ((), ())
        self.change = pages.append(list(sequences), list(tokens)) if sequences else None
        cache.length += rows
        cache.shown = list(zip(first.tolist(), end.tolist(), strict=True))
        self.written: set[int] = set()
        self.planned: set[Any] = set()
        """The kernels of the cache's plans that are of this step."""


def attend_shards(
    layer: ShardedLayer,
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
) -> Tensor:
    """Write a layer's new keys and values of this rank into its pages, and compute attention over the tokens of all ranks.
    `query [batch, q_heads, rows, dim]`; returns [batch, rows, q_heads, value_dim]."""
    if gates is not None:
        raise TensorError(f"{CACHE}: head gates, which attn.transformers.ShardedCache does not serve")
    cache, sinks = layer.cache, None if sinks is None else sinks.float().contiguous()
    options = {"scale": scale, "see": see, "softcap": softcap, "sinks": sinks}
    if cache.prompt is not None:
        return _attend_part(cache, cache.prompt, layer.index, query, key.keys, value, **options)
    return _attend_all(cache, layer.index, query, key.keys, value, spans, **options)


def _attend_part(
    cache: ShardedCache,
    prompt: Prompt,
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    see: str,
    softcap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Compute the rows of this rank's chunks, [1, q_heads, rows, dim]."""
    batch = len(prompt.starts) - 1
    cache.begin(layer, batch, key, value)
    if prompt.change is None:
        prompt.change = cache.pages.append(list(range(batch)), numpy.diff(prompt.starts).tolist())
    q, k, v = (each[0].transpose(0, 1).contiguous() for each in (query, key, value))
    prompt.change.write_own(layer, k, v)
    out = attend(
        *(q, k, v, cache.group),
        form=prompt.form,
        split=prompt.split,
        see=read_visibility(see),
        softcap=softcap or None,
        sink_logits=sinks,
        scale=scale,
        cu_seqlens=prompt.starts,
    )
    return out[None]


def _attend_all(
    cache: ShardedCache,
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spans: Tensor,
    *,
    scale: float,
    see: str,
    softcap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Compute rows that every rank has."""
    batch, q_heads, rows, _ = query.shape
    cache.begin(layer, batch, key, value)
    step = cache.step
    if step is None or layer in step.written:
        missing = [] if step is None else sorted(set(range(len(cache.layers))) - step.written)
        if missing:
            raise PlanError(
                f"{CACHE}: the last forward pass did not reach layers {missing}: reset() the cache"
            )
        step = cache.step = ShardedStep(cache, spans, rows)
    step.written.add(layer)
    if step.change is None:
        return query.new_zeros(batch, rows, q_heads, value.shape[3])
    step.change.write(layer, step.take(key).contiguous(), step.take(value).contiguous())
    pages = cache.pages.cache
    kernel = padded_kernel(
        *(q_heads, pages.kv_heads, (pages.head_dim, pages.value_dim), query.dtype, scale, see, softcap),
        *(False, (), pages.device, cache.store),
        return_lse=True,
    )
    plan = cache.plans.get(kernel)
    if plan is None:
        plan = cache.plans[kernel] = cache.pages.plan(kernel, step.requests)
    elif kernel not in step.planned:
        plan.update(step.requests)
    step.planned.add(kernel)
    out, lse = plan.run(step.take(query).contiguous(), layer, return_lse=True)
    return step.put(with_sinks(out, lse, sinks)[0], batch)
