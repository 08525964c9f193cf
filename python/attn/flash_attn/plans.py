# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans of calls over pages, which are kept from call to call, by thread.

Tables in CPU memory are planned on the host: layers with equal tables share a plan, and the next step's tables update
it. Tables of a GPU are planned there, and no call waits for them."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from ..describe.spec import Spec
from ..describe.stores import Paged
from ..memory import devices
from ..memory.devices import stream_number
from ..run.device_plan import DevicePlan, DevicePlanner, blocks_on
from ..run.kernel import Kernel
from ..run.kernels import compile as compile_kernel
from ..run.plan import Plan
from .options import Options
from .pages import CachePages

_MOST_PLANS = 16  # In a thread.
_local = threading.local()


@dataclass(frozen=True)
class Tables:
    """Tables of a call: arrays of NumPy, or tensors of one device. All int32.

    starts     [sequences + 1]: the first row of each sequence; rows are the last tokens of their sequence
    lengths    [sequences]: tokens
    blocks     [sequences, pages]: the block table"""

    starts: Any
    lengths: Any
    blocks: Any

    @property
    def on_host(self) -> bool:
        return isinstance(self.lengths, numpy.ndarray)

    def of_sequence(self, i: int, rows: int) -> Tables:
        """Return the tables of one sequence, which has so many rows."""
        if self.on_host:
            starts: Any = numpy.array([0, rows], numpy.int32)
        else:
            starts = torch.arange(2, dtype=torch.int32, device=self.lengths.device) * rows
        return Tables(starts, self.lengths[i : i + 1], self.blocks[i : i + 1])


class PagedCall:
    """A planned call: rows q [rows, heads, dim] over pages. Making it raises all errors, and writes nothing."""

    def __init__(self, q: Tensor, pages: CachePages, tables: Tables, options: Options, slopes: Tensor | None):
        if tables.on_host:
            tables = Tables(*(numpy.ascontiguousarray(each) for each in vars(tables).values()))
        else:
            tables = Tables(*(each.contiguous() for each in vars(tables).values()))
        self.tables, self.options = tables, options
        self.extras = {} if slopes is None else {"slopes": slopes}
        shapes = q.shape[1], pages.k.shape[2], q.shape[2], pages.v.shape[3]
        kind = (*shapes, q.dtype, pages.size, options, slopes is not None, not tables.on_host)
        self.kernel = _kernel(*kind, str(q.device), devices.generation)
        self._data = {"q": q, "kv.k_pages": pages.k, "kv.v_pages": pages.v, **self.extras}
        self.plan: Plan | DevicePlan = self._on_host() if tables.on_host else self._on_device(q, pages)

    def run(self, q: Tensor, pages: CachePages, return_lse: bool) -> tuple[Tensor, Tensor | None]:
        """Compute out [rows, heads, dim] and, if wanted, lse [rows, heads] of tensors like those planned for. If tables
        of a GPU are wrong, both are NaN."""
        lse, given = None, (pages.k, pages.v)
        if self.tables.on_host:
            found = self.kernel.run(q, given, self.plan, return_lse=return_lse, **self.extras)
            return found if return_lse else (found, None)
        out = q.new_full((*q.shape[:2], pages.v.shape[3]), torch.nan)
        if return_lse:
            lse = q.new_full(q.shape[:2], torch.nan, dtype=torch.float32)
        self.kernel.run(q, given, self.plan, out=out, lse=lse, **self.extras)
        return out, lse

    def _described(self, q_start: Any, lengths: Any, blocks: Any) -> dict[str, Any]:
        shapes = {name: (each.dtype, tuple(each.shape)) for name, each in self._data.items()}
        return shapes | {"q_start": q_start, "kv.lengths": lengths, "kv.block_table": blocks}

    def _on_host(self) -> Plan:
        starts, lengths, blocks = vars(self.tables).values()
        rows = numpy.diff(starts)
        pos0 = numpy.maximum(rows - lengths, 0).astype(numpy.int32)  # No position is negative.
        row = numpy.arange(starts[-1], dtype=numpy.int32) - numpy.repeat(starts[:-1], rows)
        positions = row + numpy.repeat(pos0 + lengths - rows, rows)
        batch = self._described(starts, lengths, blocks) | {"q_pos": positions, "kv.pos0": pos0}
        told = tuple(
            (each.shape, each.tobytes()) if isinstance(each, numpy.ndarray) else each
            for each in batch.values()
        )
        plan, before = _kept(("host", self.kernel, self._stream), lambda: (self.kernel.plan(batch), told))
        if before != told:
            plan.update(batch)
            _keep(("host", self.kernel, self._stream), (plan, told))
        return plan

    def _on_device(self, q: Tensor, pages: CachePages) -> DevicePlan:
        starts, lengths, blocks = vars(self.tables).values()
        key = "device", self.kernel, self._stream, len(q), *blocks.shape, len(pages.k)
        planner: DevicePlanner = _kept(key, lambda: self._planner(len(q), pages.size))
        return planner.plan({"q_start": starts, "kv.lengths": lengths, "kv.block_table": blocks})

    def _planner(self, rows: int, page_size: int) -> DevicePlanner:
        """Plan the largest step: as many rows in each sequence as there may be, over all of its pages."""
        sequences, entries = self.tables.blocks.shape
        each = -(-rows // max(sequences, 1))
        starts = numpy.minimum(numpy.arange(sequences + 1) * each, rows).astype(numpy.int32)
        lengths = numpy.full(sequences, entries * page_size, numpy.int32)
        batch = self._described(starts, lengths, numpy.zeros((sequences, entries), numpy.int32))
        return self.kernel.device_planner(batch, blocks=blocks_on(self.kernel.device))

    @property
    def _stream(self) -> int:
        return stream_number(self.kernel.device, None)


def _kept(key: tuple, make: Any) -> Any:
    """Return what is kept by a key in this thread, or made now."""
    known = _local.__dict__.setdefault("plans", OrderedDict())
    if key not in known:
        _keep(key, make())
    known.move_to_end(key)
    return known[key]


def _keep(key: tuple, value: Any) -> None:
    known = _local.__dict__.setdefault("plans", OrderedDict())
    known[key] = value
    while len(known) > _MOST_PLANS:
        known.popitem(last=False)


@functools.lru_cache(maxsize=128)
def _kernel(
    heads: int,
    kv_heads: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype,
    page_size: int,
    options: Options,
    alibi: bool,
    device_plan: bool,
    device: str,
    generation: int,
) -> Kernel:
    score = options.score(heads) if alibi else None
    if score is None and options.softcap is not None:
        score = options.capped()
    spec = Spec(
        q_heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        value_dim=value_dim,
        dtype=dtype,
        kv=[Paged(page_size=page_size)],
        see=options.see,
        score=score,
        tensors={"slopes": (heads,)} if alibi else None,
        scale=options.scale,
        return_lse=True,
        device_plan=device_plan,
    )
    return compile_kernel(spec, device="host" if device == "cpu" else device)
