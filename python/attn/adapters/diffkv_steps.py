# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass over a cache of two precisions: attention, significance, and the policy's decisions."""

from __future__ import annotations

from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ..cache.policy import PRUNED, decide_prompt, decide_step, sight_of
from ..describe.functions import softcap as capped
from ..describe.spec import Spec
from ..describe.visibility import all_tokens, causal, read_visibility, recent, sink
from ..errors import PlanError, TensorError, expected
from ..run.attention import attend
from ..run.device_plan import blocks_on
from ..run.kernels import compile
from .diffkv_cache import DiffKVCache, DiffKVLayer
from .paged_steps import TokenRows
from .rows.visible_rows import is_window
from .span_mask import ends_at_rows
from .transformers_cache import PagedKeys
from .transformers_config import CACHE


class DiffKVStep(TokenRows):
    """The rows of a forward pass that are tokens; all layers share it."""

    def __init__(self, cache: DiffKVCache, spans: Tensor, rows: int):
        table = spans.cpu().numpy().reshape(-1, 4).astype(numpy.int64)
        first, end = table[:, 0], table[:, 1]
        self.is_prompt = cache.length == 0
        self.begun: set[int] = set()
        """Layers that have begun this step."""
        self.ended: set[int] = set()
        begin = cache.length
        self.first, self.counts = numpy.maximum(first - begin, 0), end - numpy.maximum(first, begin)
        if (self.counts <= 0).any() or (not self.is_prompt and (self.counts != rows).any()):
            raise TensorError(
                "attention_mask: expected a token of every sequence in each row after the prompt, and no padding; "
                f"got {self.counts.tolist()} tokens in {rows} rows"
            )
        if not self.is_prompt:
            cache.require_rows(rows)
        super().__init__(self.first, self.counts, rows)
        self.begin, cache.journal = begin, []
        cache.length += rows
        cache.most += int(self.counts.max())


def attend_precisions(
    layer: DiffKVLayer,
    query: Tensor,
    key: PagedKeys,
    value: Tensor,
    spans: Tensor,
    *,
    scale: float,
    see: str,
    softcap: float,
    sinks: Tensor | None,
    gates: object,
) -> Tensor:
    """Compute attention of `query [batch, q_heads, rows, dim]` over the tokens that a layer keeps and its new keys and
    values. Returns [batch, rows, q_heads, value_dim]."""
    for name, asked in (
        ("learned sinks", sinks is not None),
        ("head gates", gates is not None),
        ("rows that see tokens after their own", not ends_at_rows(see) and query.shape[2] > 1),
    ):
        if asked:
            raise PlanError(f"{CACHE}: {name}: DiffKVCache does not serve it; take PagedCache")
    rule = read_visibility(see)
    window = rule.own[0] if is_window(rule) else 0
    if 0 < window <= layer.cache.policy.window:
        legal = f"a window below the model's sliding one, {window}: in it all tokens are HIGH"
        raise expected(PlanError, "policy", legal, layer.cache.policy.window, nearest=window - 1)
    cache, keys = layer.cache, key.keys
    cache.begin(query.shape[0], keys, value)
    step = cache.step
    if step is None or layer.index in step.begun:
        cache.check_finished()
        step = cache.step = DiffKVStep(cache, spans, query.shape[2])
    step.begun.add(layer.index)
    kind = Kind(scale, window, softcap)
    if step.is_prompt:
        out = _attend_prompt(cache, layer.index, step, query, keys, value, kind)
        step.ended.add(layer.index)
        return out
    rows = [
        _attend_row(
            cache, layer.index, step.begin + row, query[:, :, row], keys[:, :, row], value[:, :, row], kind
        )
        for row in range(step.rows)
    ]
    step.ended.add(layer.index)
    return torch.stack(rows, 1)


class Kind(NamedTuple):
    """Parameters of a layer's attention; a window of 0 is no window, and a cap of 0 no cap."""

    scale: float
    window: int
    softcap: float


def _attend_prompt(
    cache: DiffKVCache, layer: int, step: DiffKVStep, query: Tensor, key: Tensor, value: Tensor, kind: Kind
) -> Tensor:
    policy, (batch, heads) = cache.policy, cache.shape
    q, k, v = (step.take(tensor).contiguous() for tensor in (query, key, value))
    starts = numpy.concatenate([[0], numpy.cumsum(step.counts)]).astype(numpy.int32)
    group = q.shape[1] // heads
    out, worth = q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(len(q), heads, dtype=torch.float32)
    sights = [sight_of(policy, layer, head) for head in range(heads)]
    for sight in dict.fromkeys(sights):  # Heads that see the same are computed together.
        mine = [head for head in range(heads) if sights[head] == sight]
        rows = [head * group + member for head in mine for member in range(group)]
        see = causal() if sight is None else causal() & (sink(sight[0]) | recent(sight[1]))
        out[:, rows], worth[:, mine] = attend(
            q[:, rows],
            k[:, mine],
            v[:, mine],
            see=see & recent(kind.window) if kind.window else see,
            softcap=kind.softcap or None,
            cu_seqlens=starts,
            scale=kind.scale,
            significance=policy.group,
            significance_rows=policy.rows,
        )

    def in_lists(tensor: Tensor) -> Tensor:
        """Reorder [tokens, heads, ...] to [lists, tokens of the longest, ...]."""
        full = tensor.new_zeros(batch, int(step.counts.max()), *tensor.shape[1:])
        for each, found in zip(full, tensor.split(step.counts.tolist()), strict=True):
            each[: len(found)] = found
        return full.transpose(1, 2).flatten(0, 1)

    lengths = torch.from_numpy(numpy.repeat(step.counts, heads))
    kept = decide_prompt(policy, in_lists(worth), lengths, cache.heads(layer))
    if kind.window:  # No later row sees these tokens.
        place = torch.arange(kept.level.shape[1], device=kept.level.device)
        gone = place < kept.lengths[:, None] - kind.window + 1
        kept.level[gone], kept.score[gone] = PRUNED, 0
    cache.store_prompt(layer, in_lists(k), in_lists(v), kept)
    return step.put(out, batch)


def _attend_row(
    cache: DiffKVCache, layer: int, at: int, query: Tensor, key: Tensor, value: Tensor, kind: Kind
) -> Tensor:
    """Compute attention of one token of each sequence, [batch, heads, dim], in column `at` of the batch. Returns
    [batch, q_heads, value_dim]."""
    kept, lists = cache.kept[layer], cache.lists
    assert kept is not None and lists is not None
    keys, values = (tensor.reshape(lists.lists, -1) for tensor in (key, value))
    cache.begin_row(layer, at, keys, values, kind.window)
    q = query.reshape(lists.lists, -1, query.shape[-1]).contiguous()
    tables = {}
    pages = _width(cache)
    for end, store in enumerate(cache.stores):
        tables[f"{store.name}.block_table"] = lists.table(layer, end, pages)[:, None]
        tables[f"{store.name}.lengths"] = lists.counts[end, layer][:, None]
    kernel, planner = _planned(cache, q, kind, pages)
    operands = [end.operand for end in lists.ends]
    out, weighed = kernel.run(q, *operands, planner.plan(tables))
    worth = _by_position(cache, layer, weighed)
    changes = decide_step(cache.policy, kept, worth)
    cache.apply(layer, changes.pruned, changes.downgraded)
    return out.view(cache.shape[0], -1, out.shape[-1])


def _width(cache: DiffKVCache) -> int:
    """Return the number of a list's pages in the kernel's table: enough for all tokens so far, rounded up to a power of
    two."""
    lists = cache.lists
    assert lists is not None
    return min(1 << (-(-cache.most // min(lists.pool.page_tokens)) - 1).bit_length(), lists.pool.columns)


def _planned(cache: DiffKVCache, q: Tensor, kind: Kind, pages: int) -> tuple:
    """Return a kernel of both precisions, to which every list is a sequence, and the planner of its steps. Rows see all
    tokens of their lists."""
    lists = cache.lists
    assert lists is not None
    key = q.shape, kind, pages
    if key not in cache.kernels:
        spec = Spec(
            q_heads=q.shape[1],
            kv_heads=1,
            head_dim=q.shape[2],
            value_dim=cache._dims[1],
            dtype=q.dtype,
            kv=[end.store for end in lists.ends],
            see=all_tokens(),
            score=(lambda s, h, qi, ki: capped(s, kind.softcap)) if kind.softcap else None,
            scale=kind.scale,
            significance=cache.policy.group,
            device_plan=True,
        )
        kernel = compile(spec, device=lists.device)
        batch: dict[str, object] = {"q": q, "q_start": numpy.arange(len(q) + 1, dtype=numpy.int32)}
        for end in lists.ends:
            name, most = end.store.name, pages * end.store.page_size
            batch |= end.tensors
            batch[f"{name}.block_table"] = numpy.zeros((len(q), 1, pages), numpy.int32)
            batch[f"{name}.lengths"] = numpy.full((len(q), 1), most, numpy.int32)
            batch[f"{name}.pos0"] = numpy.zeros(len(q), numpy.int32)
        cache.kernels[key] = kernel, kernel.device_planner(batch, blocks=blocks_on(kernel.device))
    return cache.kernels[key]


def _by_position(cache: DiffKVCache, layer: int, weighed: tuple[Tensor, ...]) -> Tensor:
    """Reorder the kernel's significance of a layer's slots, [lists, 1, pages, page_size], to [lists, tokens] by
    position."""
    lists = cache.lists
    assert lists is not None
    worth = weighed[0].new_zeros(lists.lists, cache.most + 1)
    for end, of_places in enumerate(weighed):
        positions = lists.positions(layer, end, of_places.shape[2] * of_places.shape[3])
        at = torch.where(positions >= 0, positions, cache.most)
        worth.scatter_(1, at, of_places.flatten(1))
    return worth[:, : cache.most]
