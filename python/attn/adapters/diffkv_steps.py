# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass over a cache of two precisions: attention, what tokens were worth, and what the policy makes of it."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from ..describe.spec import Spec
from ..describe.visibility import all_tokens
from ..errors import PlanError, TensorError
from ..run.attention import attend
from ..run.kernels import compile
from ..run.significance import grouped
from .diffkv_cache import DiffKVCache, DiffKVLayer
from .transformers_cache import PagedKeys


class DiffKVStep:
    """What all layers of a forward pass share: which rows are tokens."""

    def __init__(self, cache: DiffKVCache, spans: Tensor, rows: int):
        table = spans.numpy().reshape(-1, 4).astype(numpy.int64)
        first, end = table[:, 0], table[:, 1]
        self.is_prompt, self.rows, self.layers = cache.length == 0, rows, set()
        begin = cache.length
        self.first, self.counts = numpy.maximum(first - begin, 0), end - numpy.maximum(first, begin)
        if (self.counts <= 0).any() or (not self.is_prompt and (self.counts != rows).any()):
            raise TensorError(
                "attention_mask: expected a token of every sequence in each row behind the prompt, and none of padding; "
                f"got {self.counts.tolist()} tokens in {rows} rows"
            )
        if not self.is_prompt:
            cache.require_step()
        cache.length += rows

    def take(self, tensor: Tensor) -> Tensor:
        """[batch, heads, rows, dim] -> [tokens, heads, dim], without padding."""
        spans = zip(tensor, self.first.tolist(), self.counts.tolist(), strict=True)
        return torch.cat([each[:, first : first + count].transpose(0, 1) for each, first, count in spans])

    def put(self, out: Tensor, batch: int) -> Tensor:
        """[tokens, heads, dim] -> [batch, rows, heads, dim]; rows of padding are 0."""
        full = out.new_zeros(batch, self.rows, *out.shape[1:])
        spans = zip(full, out.split(self.counts.tolist()), self.first.tolist(), strict=True)
        for each, found, first in spans:
            each[first : first + len(found)] = found
        return full


def attend_precisions(
    layer: DiffKVLayer,
    query: Tensor,
    key: PagedKeys,
    value: Tensor,
    spans: Tensor,
    *,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    gates: object,
) -> Tensor:
    """`query [batch, q_heads, rows, dim]` over what the layer keeps and its new keys and values: [batch, rows, q_heads,
    value_dim]."""
    for name, asked in (
        ("a sliding window", window),
        ("a soft cap", softcap),
        ("learned sinks", sinks is not None),
        ("head gates", gates is not None),
        ("rows that see what is behind them", not causal and query.shape[2] > 1),
    ):
        if asked:
            raise PlanError(f"past_key_values: {name}: DiffKVCache does not serve it; take PagedCache")
    cache, keys = layer.cache, key.keys
    cache.begin(query.shape[0], keys, value)
    step = cache.step
    if step is None or layer.index in step.layers:
        step = cache.step = DiffKVStep(cache, spans, query.shape[2])
    step.layers.add(layer.index)
    if step.is_prompt:
        return _attend_prompt(cache, layer.index, step, query, keys, value, scale)
    rows = [
        _attend_row(cache, layer.index, query[:, :, row], keys[:, :, row], value[:, :, row], scale)
        for row in range(step.rows)
    ]
    return torch.stack(rows, 1)


def _attend_prompt(
    cache: DiffKVCache, layer: int, step: DiffKVStep, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    policy, (batch, heads) = cache.policy, cache.shape
    q, k, v = (step.take(tensor).contiguous() for tensor in (query, key, value))
    starts = numpy.concatenate([[0], numpy.cumsum(step.counts)]).astype(numpy.int32)
    group = q.shape[1] // heads
    out, worth = q.new_empty(*q.shape[:2], v.shape[2]), torch.empty(len(q), heads)
    sights = [policy.sees(layer, head) for head in range(heads)]
    for sight in dict.fromkeys(sights):  # heads that see the same, together
        mine = [head for head in range(heads) if sights[head] == sight]
        rows = [head * group + member for head in mine for member in range(group)]
        out[:, rows], worth[:, mine] = attend(
            q[:, rows],
            k[:, mine],
            v[:, mine],
            causal=True,
            sink=sight[0] if sight else None,
            window=sight[1] if sight else None,
            cu_seqlens=starts,
            scale=scale,
            significance=policy.group,
            significance_rows=policy.rows,
        )

    def in_lists(tensor: Tensor) -> Tensor:
        """[tokens, heads, ...] -> [lists, tokens of the longest, ...]"""
        full = tensor.new_zeros(batch, int(step.counts.max()), *tensor.shape[1:])
        for each, found in zip(full, tensor.split(step.counts.tolist()), strict=True):
            each[: len(found)] = found
        return full.transpose(1, 2).flatten(0, 1)

    lengths = torch.from_numpy(numpy.repeat(step.counts, heads))
    kept = policy.prompt(in_lists(worth), lengths, cache.heads(layer))
    cache.store_prompt(layer, in_lists(k), in_lists(v), kept)
    return step.put(out, batch)


def _attend_row(
    cache: DiffKVCache, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """[batch, heads, dim] of one token of each sequence -> [batch, q_heads, value_dim]."""
    kept, lists, high = cache.kept[layer], cache.lists(layer), cache.pools[0]
    assert kept is not None
    keys, values = (tensor.reshape(len(lists), -1) for tensor in (key, value))
    high.put(lists, kept.lengths.tolist(), high.encode(keys, values))
    q = query.reshape(len(lists), -1, query.shape[-1]).contiguous()
    kernel, plan = _planned(cache, layer, q, scale)
    operands = [tuple(pool.tensors.values()) for pool in cache.pools]
    out, lse = kernel.run(q, *operands, plan, return_lse=True)
    worth = _significance(cache, lists, q, lse, scale, int(kept.lengths.max()) + 1)
    changes = cache.policy.step(kept, worth)
    cache.apply(layer, changes.pruned, changes.downgraded)
    return out.view(cache.shape[0], -1, out.shape[-1])


def _planned(cache: DiffKVCache, layer: int, q: Tensor, scale: float) -> tuple:
    """A kernel of both precisions, to which every list is a sequence, and its plan for this step."""
    lists = cache.lists(layer)
    batch: dict[str, object] = {"q": q, "q_start": numpy.arange(len(lists) + 1, dtype=numpy.int32)}
    for pool in cache.pools:
        name = pool.store.name
        batch |= {f"{name}.{part}": tensor for part, tensor in pool.tensors.items()}
        batch[f"{name}.block_table"], batch[f"{name}.lengths"] = pool.table(lists)
        batch[f"{name}.pos0"] = numpy.zeros(len(lists), numpy.int32)
    known = cache.kernels.get((q.shape, scale))
    if known is not None:
        known[1].update(batch)
        return known
    spec = Spec(
        q_heads=q.shape[1],
        kv_heads=1,
        head_dim=q.shape[2],
        value_dim=cache._dims[1],
        dtype=q.dtype,
        kv=[pool.store for pool in cache.pools],
        see=all_tokens(),
        scale=scale,
        return_lse=True,
    )
    kernel = compile(spec, device="host")
    known = cache.kernels[q.shape, scale] = kernel, kernel.plan(batch)
    return known


def _significance(
    cache: DiffKVCache, lists: range, q: Tensor, lse: Tensor, scale: float, tokens: int
) -> Tensor:
    """[lists, tokens], by position: of each token that is kept its weight in the row of each head, as one number."""
    worth = torch.zeros(len(lists), tokens)
    for pool in cache.pools:
        counts = torch.tensor([len(pool.positions[index]) for index in lists])
        owner = torch.repeat_interleave(torch.arange(len(lists)), counts)
        position = [place for index in lists for place in pool.positions[index]]
        keys = pool.decode(pool.read(pool.slots(lists)), "k")
        scores = torch.einsum("nd,ngd->ng", keys, q[owner].float()) * scale
        worth[owner, torch.tensor(position, dtype=torch.int64)] = grouped(
            (scores - lse[owner]).exp(), cache.policy.group
        )
    return worth
