# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of Transformers' continuous batching, over the pages of its own PagedAttentionCache.

Layers that see everything are read in their pages, through block tables made from the cache's read indices. For layers
with sliding windows the cache keeps rings of tokens, which it gathers itself: those are packed sequences. The first
layer of a step finds out what all layers share. It waits for the device once, but not in steps of fixed shapes, as
graphs need them (planned_batches.py).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from ..describe.stores import Packed, Paged
from ..errors import TensorError
from ..memory.page_sizes import page_of
from ..run.kernel import Kernel
from ..run.plan import Plan
from .planned_batches import PagedInputs, PlannedBatch, Planners, is_capturing, is_padded
from .rows.mask_functions import CAUSAL
from .rows.padded_calls import padded_kernel

if TYPE_CHECKING:  # Not all versions of Transformers have it.
    from transformers.generation.continuous_batching.cache import PagedAttentionCache


class _Step:
    """The sequences of a step. Those without rows are the padding of a batch of fixed size."""

    def __init__(self, inputs: PagedInputs):
        self.inputs = inputs
        starts = inputs.cu_seq_lens_q.cpu().numpy().astype(numpy.int32)
        self.count = int(numpy.count_nonzero(numpy.diff(starts)))
        self.q_start = starts[: self.count + 1]
        self.planned: dict[tuple[Kernel, int], Plan] = {}

    @property
    def rows(self) -> int:
        return int(self.q_start[-1])

    def kv_start(self, kind: str) -> numpy.ndarray:
        """Return the offsets of each sequence's tokens among those that a layer of this kind reads."""
        starts = self.inputs.cu_seq_lens_k
        starts = starts[kind] if isinstance(starts, dict) else starts
        return starts.cpu().numpy().astype(numpy.int32)[: self.count + 1]

    def page_lists(self, group: int, page: int) -> dict[str, numpy.ndarray]:
        """Return the block table and lengths of each sequence. A step reads what it writes if the cache held nothing
        before."""
        starts = self.kv_start("full_attention")
        lengths = numpy.diff(starts)
        pages = -(-lengths // page)
        firsts = [
            numpy.arange(start, start + n * page, page) for start, n in zip(starts, pages, strict=False)
        ]
        index = self.inputs.read_index[group]
        if not len(index):
            index = self.inputs.write_index[group]
        found = index[torch.from_numpy(numpy.concatenate(firsts)).to(index.device)].cpu().numpy() // page
        table = numpy.zeros((self.count, int(pages.max())), numpy.int32)
        table[numpy.arange(table.shape[1]) < pages[:, None]] = found
        return {"kv.block_table": table, "kv.lengths": lengths}


@dataclass
class _State:
    """The state of a cache: its step, and a plan for each kernel and group of layers, updated from step to step."""

    step: _Step | PlannedBatch | None = None
    planners: Planners = field(default_factory=dict)
    plans: dict[tuple[Kernel, int], Plan] = field(default_factory=dict)


_states: weakref.WeakKeyDictionary[PagedAttentionCache, _State] = weakref.WeakKeyDictionary()


def attend_batch(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: PagedAttentionCache,
    inputs: PagedInputs,
    *,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    numerics: str | None = None,
) -> Tensor:
    """Write a layer's new keys and values `[1, kv_heads, rows, dim]` into its pages, and compute attention over all
    tokens of their sequences. Returns `[1, rows, q_heads, dim]`; rows that are padding are 0."""
    state = _states.setdefault(cache, _State())
    padded = is_padded(inputs, query.shape[2])
    group, place = cache.layer_index_to_group_indices[layer]
    window = cache.sliding_windows[layer]
    windowed = window > 1
    if windowed and numerics is not None:  # The cache gathers a ring of tokens without their positions.
        raise TensorError(
            f'generate_batch: a sliding window beside numerics="{numerics}", which attn does not serve; take '
            "attn.transformers.Engine"
        )
    page = page_of(cache.block_size)
    kernel = padded_kernel(
        query.shape[1],
        key.shape[1],
        (key.shape[3], value.shape[3]),
        query.dtype,
        scale,
        f"window({window})" if windowed else CAUSAL,
        softcap,
        sinks is not None,
        (),
        str(query.device),
        Packed() if windowed else Paged(page_size=page),
        padded,
        numerics=numerics,
    )
    reads = inputs.read_index if windowed else [index[:0] for index in inputs.read_index]
    k, v = cache.update(
        key_states=key,
        value_states=value,
        layer_idx=layer,
        read_index=reads,
        write_index=inputs.write_index,
    )
    if not windowed:
        k, v = (
            pool[place].view(-1, page, *pool[place].shape[1:])
            for pool in (cache.key_cache, cache.value_cache)
        )
    rows = query[0].transpose(0, 1)
    extra = {} if sinks is None else {"sink_logits": sinks}
    if padded:
        if not isinstance(state.step, PlannedBatch) or not state.step.is_of(inputs, query):
            state.step = PlannedBatch(inputs, query.shape[2], is_capturing(query))
        kind = "sliding_attention" if windowed else "full_attention"
        planned = state.step.plan(state.planners, kernel, group, kind, 0 if windowed else page, rows, k, v)
        out = query.new_zeros(query.shape[2], query.shape[1], value.shape[3])  # Rows of no sequence stay 0.
        kernel.run(rows, (k, v), planned, out=out, **extra)
        return out.unsqueeze(0)
    step = state.step
    if not isinstance(step, _Step) or step.inputs.read_index is not inputs.read_index:
        step = state.step = _Step(inputs)
    rows = rows[: step.rows]
    plan = _plan(state, step, kernel, group, rows, k, v, page, windowed, sinks)
    out = kernel.run(rows, (k, v), plan, **extra)
    if step.rows < query.shape[2]:
        out = torch.cat([out, out.new_zeros(query.shape[2] - step.rows, *out.shape[1:])])
    return out.unsqueeze(0)


def _plan(
    state: _State,
    step: _Step,
    kernel: Kernel,
    group: int,
    rows: Tensor,
    k: Tensor,
    v: Tensor,
    page: int,
    windowed: bool,
    sinks: Tensor | None,
) -> Plan:
    at = kernel, group
    if at in step.planned:
        return step.planned[at]
    names = ("kv.k", "kv.v") if windowed else ("kv.k_pages", "kv.v_pages")
    batch = {"q": rows, "q_start": step.q_start} | dict(zip(names, (k, v), strict=True))
    if sinks is not None:
        batch["sink_logits"] = sinks
    if windowed:
        batch["kv.start"] = step.kv_start("sliding_attention")
    else:
        batch |= step.page_lists(group, page)
    if at in state.plans:
        state.plans[at].update(batch)
    else:
        state.plans[at] = kernel.plan(batch)
    plan = step.planned[at] = state.plans[at]
    return plan
