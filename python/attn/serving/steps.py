# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step's tables become plans, which are kept from step to step.

A plan serves all layers with one kernel and one block table. Decoding steps keep a plan of their own beside that of
steps with prompts, so that a step with a prompt does not end its growth: while the same sequences decode, a plan is
only extended by their new tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from torch import Tensor

from ..cache.integers import whole
from ..errors import PlanError, expected
from ..memory.tables import int32_array
from ..run.kernel import Kernel
from ..run.plan import Plan
from .packed import PackedPages, check_kind
from .prefixes import shared_tables

_ENTRIES = 64
"""Tables by head are cut behind the longest sequence, to multiples of so many entries: their sizes seldom change."""

_LAST = (1 << 31) - 1


class Plans:
    """The plans of the layers that read one block table, by kernel. Not for several threads at once.

    shared_pages  prefixes of at least so many pages, which neighbours in the block table have in common, are read once for
                  all of their rows; 0: never. Results differ by rounding alone; layers with numerics="row" share
                  nothing, and keep their bits. Raises PlanError"""

    def __init__(self, shared_pages: int = 0) -> None:
        self.shared_pages = whole("shared_pages", shared_pages, 0)
        self.kept: dict[tuple[Kernel, bool], Plan] = {}
        """Plans by kernel, and by whether they are of decoding."""
        self._known: dict[
            tuple[int, int], tuple[numpy.ndarray, numpy.ndarray]
        ] = {}  # Tables, and those by head.
        self._steps = 0
        self._latest: dict[tuple[Kernel, bool], int] = {}  # The number of the step that has the plan.

    def step(self, q_start: object, lengths: object, block_table: object) -> Step:
        """Return the step of a batch.

        q_start      integers [sequences + 1]: the first row of each sequence, and the number of rows
        lengths      integers [sequences]: tokens of each sequence, with those of the step
        block_table  integers [sequences, pages]; entries past a sequence's tokens are not read

        Tables are lists, arrays or tensors, which are copied. The call waits for a table on a GPU. Rows are the last
        tokens of their sequences. Raises PlanError."""
        return Step(self, q_start, lengths, block_table)

    def _blocks(self, table: numpy.ndarray, heads: int, apart: int) -> numpy.ndarray:
        """Return a block table by head [sequences, heads, entries]. While sequences decode, few of its rows change: only
        those are computed."""
        known, found = self._known.get((heads, apart), (None, None))
        rows: Any = slice(None)
        if known is not None and found is not None and known.shape == table.shape:
            (rows,) = (known != table).any(1).nonzero()
            if not len(rows):
                return found
            found = found.copy()  # An earlier step may have the other one.
        else:
            found = numpy.empty((len(table), heads, table.shape[1]), numpy.int32)
        most = (_LAST - heads) // apart  # Products of garbage would wrap, and might name a page.
        first = table[rows, None].clip(-1, most) * numpy.int32(apart)
        found[rows] = first + numpy.arange(heads, dtype=numpy.int32)[:, None]
        self._known[heads, apart] = table, found
        return found


class Step:
    """A step's tables; `Plans.step` returns it. It runs until a later step of the same `Plans` takes its plan."""

    def __init__(self, plans: Plans, q_start: object, lengths: object, block_table: object):
        self._plans = plans
        starts, self.lengths, self.block_table = (
            int32_array(name, table).copy()  # An engine reuses its tables' memory.
            for name, table in (("q_start", q_start), ("lengths", lengths), ("block_table", block_table))
        )
        count = len(self.lengths)
        if self.lengths.ndim != 1 or starts.shape != (count + 1,):
            legal = f"[{count + 1}], one more than lengths"
            raise expected(PlanError, "q_start", legal, starts)
        if self.block_table.ndim != 2 or len(self.block_table) != count:
            raise expected(PlanError, "block_table", f"[{count}, pages]", self.block_table)
        self.q_start = starts
        self.rows = int(starts[-1])
        """The number of query rows."""
        self.decodes = bool((numpy.diff(starts) <= 1).all())
        """Whether no sequence has more than one row."""
        self._made: dict[Kernel, Plan] = {}
        self._shared: dict[int, dict[str, Any] | None] = {}
        self._by_head: dict[tuple[int, int, int, bool], dict[str, Any]] = {}
        plans._steps += 1
        self._number = plans._steps

    def plan(
        self, kernel: Kernel, q: Tensor, pages: Sequence[Tensor], tensors: Mapping[str, Any] | None = None
    ) -> Plan:
        """Return the plan of the layers with this kernel; it is made in the first of them. `q`, `pages` and `tensors`
        give dtypes and shapes. Raises PlanError, which names the table and the entry."""
        key = kernel, self.decodes
        made = self._made.get(kernel)
        if made is not None:
            if self._plans._latest[key] != self._number:
                raise PlanError(
                    "step: its plan is a later step's now; keep a Plans for each step that runs beside another"
                )
            return made
        batch: dict[str, Any] = {"q": (q.dtype, tuple(q.shape)), "q_start": self.q_start}
        parts = kernel._parts["kv"]
        batch |= {part: (x.dtype, tuple(x.shape)) for part, x in zip(parts, pages, strict=False)}
        batch |= {name: (x.dtype, tuple(x.shape)) for name, x in (tensors or {}).items()}
        size, shares = pages[0].shape[1], kernel.numerics is None
        check_kind(kernel, pages)
        if isinstance(pages, PackedPages):
            batch |= self._tables_of_heads(size, pages.packing.heads, pages.apart, shares)
        else:
            batch |= self._tables(size, shares)
        plan = self._plans.kept.get(key)
        try:
            if plan is None:
                plan = self._plans.kept[key] = kernel.plan(batch)
            else:
                plan.update(batch)
        except PlanError:
            if isinstance(pages, PackedPages):
                self._check_pages(len(pages.cache), size)
            raise
        self._made[kernel], self._plans._latest[key] = plan, self._number
        return plan

    def _tables(self, page_size: int, shares: bool) -> dict[str, Any]:
        """Return the tables of keys and values; those of layers with equal pages are the same. `shares`: whether shared
        pages may be read once."""
        least = self._plans.shared_pages if shares else 0
        if least and page_size not in self._shared:
            given = self.q_start, self.lengths, self.block_table
            self._shared[page_size] = shared_tables(*given, page_size, least)
        found = self._shared.get(page_size) if shares else None
        return found or {"kv.lengths": self.lengths, "kv.block_table": self.block_table}

    def _tables_of_heads(self, page_size: int, heads: int, apart: int, shares: bool) -> dict[str, Any]:
        """Return tables in which each head has a list of its own, of its blocks in pages that are `apart` blocks
        apart."""
        key = page_size, heads, apart, shares
        if key not in self._by_head:
            tables = dict(self._tables(page_size, shares))
            entries = -(-int(tables["kv.lengths"].max(initial=1)) // (page_size * _ENTRIES)) * _ENTRIES
            tables["kv.block_table"] = self._plans._blocks(
                tables["kv.block_table"][:, :entries], heads, apart
            )
            tables["kv.lengths"] = numpy.repeat(tables["kv.lengths"][:, None], heads, 1)
            self._by_head[key] = tables
        return self._by_head[key]

    def _check_pages(self, count: int, page_size: int) -> None:
        """Refuse an entry of the block table that is no page of a cache, by the caller's numbers: kernels count blocks of
        heads."""
        used = -(-self.lengths[:, None] // page_size) > numpy.arange(self.block_table.shape[1])
        wrong = numpy.argwhere(used & ((self.block_table < 0) | (self.block_table >= count)))
        if len(wrong):
            row, column = wrong[0].tolist()
            given = int(self.block_table[row, column])
            raise expected(PlanError, f"block_table[{row}][{column}]", f"a page, 0 to {count - 1}", given)

    def run(
        self,
        kernel: Kernel,
        q: Tensor,
        pages: Sequence[Tensor],
        *,
        out: Tensor | None = None,
        output_scales: Tensor | None = None,
        **tensors: Tensor,
    ) -> Any:
        """Compute attention of a layer.

        q        [rows or more, q_heads, head_dim]; rows past the step's are not read
        pages    (k_pages, v_pages); with 8-bit floats (k_pages, v_pages, k_scales, v_scales), scales float32 [1]; of packed
                 formats what `Layer.pages` returned
        out      [rows or more, q_heads, head_dim]; rows past the step's are not written
        output_scales  float32 [rows or more, q_heads], of a layer with output_scales="head"
        tensors  sink_logits, slopes: float32 [q_heads], and output_scale: float32 [1], if the layer has them

        Returns out, or a new tensor of the step's rows; of a layer with output_scales="head" (out, output_scales)."""
        q = q[: self.rows]
        plan = self.plan(kernel, q, pages, tensors)
        into = {"out": out, "output_scales": output_scales}
        into = {name: tensor[: self.rows] for name, tensor in into.items() if tensor is not None}
        found = kernel.run(q, tuple(pages), plan, **into, **tensors)
        if not kernel._has_scales:
            return found if out is None else out
        return found[0] if out is None else out, found[1] if output_scales is None else output_scales
