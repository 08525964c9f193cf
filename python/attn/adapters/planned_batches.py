# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching of Transformers in steps of fixed shapes, which graphs replay: planned on the device.

In such steps the lists are padded tensors at fixed addresses; between two replays only their contents change. Sequences
without rows come last, and indices past the used ones belong to no sequence. PyTorch's operations compute block tables
and lengths on the lists' device, and a kernel plans by them, once for all layers that see alike: nothing waits, and
everything may be captured. Transformers runs each step before it captures it, which makes everything that is made once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy
import torch
from torch import Tensor

from ..run.device_plan import DevicePlan, DevicePlanner, blocks_on
from ..run.kernel import Kernel


@dataclass(frozen=True)
class PagedInputs:
    """The arguments that a model passes to each of its layers beside the cache, by Transformers' names; each list has
    an entry for each group of layers. Lists are new in every step."""

    cu_seq_lens_q: Tensor
    cu_seq_lens_k: Tensor | dict[str, Tensor]
    read_index: list[Tensor]
    write_index: list[Tensor]
    max_seqlen_q: int = 0


Planners = dict[tuple, DevicePlanner]
"""Planners of a cache, by kernel, group of layers and shapes. Graphs read their memory."""


def is_padded(inputs: PagedInputs, rows: int) -> bool:
    """Whether a batch has fixed shapes: Transformers then gives all rows as the most rows of a sequence, else the
    longest sequence's."""
    sequences = inputs.cu_seq_lens_q.shape[0] - 1
    return inputs.max_seqlen_q == rows and (sequences > 1 or rows == 1)


def is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _ascending(starts: Tensor) -> Tensor:
    """Return the offsets of sequences, ascending. After the last sequence with rows Transformers repeats the end, on a
    stream of its own. When it prepares steps ahead (`use_async_batching`), zeros that it copies to the device may
    arrive after that, and are read instead."""
    return starts.cummax(0).values


@dataclass
class PlannedBatch:
    """A step of fixed shapes."""

    inputs: PagedInputs
    rows: int
    captured: bool
    """Whether a graph captures it: then everything has to be done again."""
    plans: dict[tuple[Kernel, int], DevicePlan] = field(default_factory=dict)

    def is_of(self, inputs: PagedInputs, query: Tensor) -> bool:
        return self.inputs.read_index is inputs.read_index and self.captured == is_capturing(query)

    def plan(
        self,
        planners: Planners,
        kernel: Kernel,
        group: int,
        kind: str,
        page: int,
        query: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> DevicePlan:
        """Return the plan of a group's layers. `k` and `v` are pages of `page` tokens, or if that is 0 all tokens
        packed."""
        known = self.plans.get((kernel, group))
        if known is None:
            tables = self._tables(group, kind, page)
            shapes = tuple(tuple(table.shape) for table in tables.values())
            key = kernel, group, self.rows, len(k), shapes
            if key not in planners:
                planners[key] = self._make_planner(kernel, page, query, k, v, tables)
            known = self.plans[kernel, group] = planners[key].plan(tables)
        return known

    def _tables(self, group: int, kind: str, page: int) -> dict[str, Tensor]:
        starts = self.inputs.cu_seq_lens_k
        starts = _ascending(starts[kind] if isinstance(starts, dict) else starts)
        tables = {"q_start": _ascending(self.inputs.cu_seq_lens_q), "kv.lengths": starts[1:] - starts[:-1]}
        if not page:
            return tables | {"kv.start": starts}
        # A step reads what it writes if the cache held nothing before.
        index = self.inputs.read_index[group]
        index = index if len(index) else self.inputs.write_index[group]
        columns = torch.arange(0, len(index), page, device=index.device)
        firsts = (starts[:-1, None] + columns).clamp_(max=len(index) - 1)
        return tables | {"kv.block_table": (index[firsts] // page).to(torch.int32)}

    def _make_planner(
        self, kernel: Kernel, page: int, query: Tensor, k: Tensor, v: Tensor, tables: dict[str, Tensor]
    ) -> DevicePlanner:
        """Make a planner for as many sequences and rows, any of which may have all tokens."""
        count = len(tables["kv.lengths"])

        def spread(total: int) -> numpy.ndarray:
            return numpy.array([total * i // count for i in range(count + 1)], numpy.int32)

        tokens = tables["kv.block_table"].shape[1] * page if page else len(k)
        names = ("kv.k_pages", "kv.v_pages") if page else ("kv.k", "kv.v")
        largest: dict[str, object] = {
            "q": (query.dtype, tuple(query.shape)),
            "q_start": spread(self.rows),
            "kv.lengths": numpy.full(count, tokens, numpy.int32) if page else numpy.diff(spread(tokens)),
        }
        largest |= {name: (of.dtype, tuple(of.shape)) for name, of in zip(names, (k, v), strict=True)}
        if "sink_logits" in kernel.slots:
            largest["sink_logits"] = ("f32", (kernel.manifest["q_heads"],))
        if page:
            largest["kv.block_table"] = numpy.zeros(tuple(tables["kv.block_table"].shape), numpy.int32)
        else:
            largest["kv.start"] = spread(tokens)
        return kernel.device_planner(largest, tokens=tokens, blocks=blocks_on(kernel.device))
