# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step's tables become plans on the device, which the host never reads.

An engine on a GPU knows lengths before its host does. Tables of a step are copied into tables of fixed size at fixed
addresses, and a kernel makes the plans from them. Launches of a layer depend on the step's size alone, so that an engine
captures all layers in a CUDA graph, and replays it after each `step` of that size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from ..cache.integers import whole
from ..errors import PlanError, TensorError, expected
from ..memory.dtypes import torch_dtype
from ..run.device_plan import DevicePlan, DevicePlanner, blocks_on
from ..run.kernel import Kernel
from .packed import PackedPages, check_kind

_INTEGERS = torch.int32, torch.int64
_FEW = 8  # Rows of a sequence up to which a step is of decoding, with drafts.


@dataclass
class _Planned:
    """The planner of a kernel for steps of one size, and results of steps with fewer rows."""

    planner: DevicePlanner
    plan: DevicePlan
    size: int
    spare: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, name: str, like: Tensor) -> Tensor:
        """Return a tensor of `size` rows that is kept."""
        if name not in self.spare:
            self.spare[name] = like.new_zeros(self.size, *like.shape[1:])
        return self.spare[name]


class DevicePlans:
    """The plans of the layers that read one block table, made on the device. Not for several threads at once, nor on
    several streams.

    sequences  of a step, at most
    pages      columns of the block table, at most; None: as many as that of the first step
    device     of the tables: a torch.device or its name; a CPU is the host device
    sizes      numbers of rows, such as those of an engine's CUDA graphs. A step has as many rows as the smallest of these that
               is enough, or else as a power of two: if its tensors have fewer, queries and results are copied
    in_place   True: the block table of the first step is read where it lies, and so is that of each later step at the
               same address. An engine that keeps one table, int32 on the device with a row for each of `sequences` in
               its memory, saves a copy then. It stays as it is from `step` to the end of the step's launches. Other
               tables are copied; a graph reads the table that it was captured with
    options    of `Kernel.plan`, such as `blocks`

    Every sequence reads its own pages, also where pages are shared. Kernels are those of Layer(device_plan=True).
    Raises PlanError."""

    def __init__(
        self,
        sequences: int,
        pages: int | None,
        device: object,
        sizes: Sequence[int] = (),
        *,
        in_place: bool = False,
        **options: int,
    ) -> None:
        self.sequences = whole("sequences", sequences, 1)
        self.pages = None if pages is None else whole("pages", pages, 1)
        self.sizes = sorted(whole("sizes", size, 1) for size in sizes)
        self.device = torch.device(str(device))
        self.options = {"blocks": blocks_on(self.device)} | options
        self.tables: dict[str, Tensor] = {}
        """The tables that those of steps are copied into, at fixed addresses."""
        if self.pages is not None:
            self._make_tables(self.pages)
        self._shapes: tuple[tuple[int, ...], ...] = ()
        """Shapes of the latest step's tables, and of what they are copied into:"""
        self._views: tuple[Tensor, ...] = ()
        self._rest: tuple[Tensor, ...] = ()
        self._columns: int | None = None
        self._has_all_columns = False
        self._latest: tuple[tuple[int, int] | None, int, int] = None, 0, 0
        self._planned: dict[tuple[Kernel, int, int, bool], _Planned] = {}
        self._in_place = in_place
        self._lies: tuple[Any, ...] | None = None
        """Where the block table of the first step lies, and if that may be read there, all rows of its memory:"""
        self._kept: Tensor | None = None
        self._steps = 0

    def step(
        self,
        q_start: object,
        lengths: object,
        block_table: object,
        *,
        rows: int | None = None,
        longest: int | None = None,
    ) -> DeviceStep:
        """Copy the tables of a step, and launch the kernels that make the plans of steps of that size.

        q_start      int32 or int64 [sequences + 1]: the first row of each sequence, and the number of rows; sequences may have
                     no rows
        lengths      int32 or int64 [sequences]: tokens of each sequence, with those of the step
        block_table  int32 or int64 [sequences, pages], with any strides; entries past a sequence's tokens are not read
        rows         of the tensors of queries in this step: at least those of the sequences. By default these, which are
                     read from `q_start`
        longest      rows of a sequence, at most; by default as many as `rows`. Steps with few rows a sequence have a kernel of
                     their own

        Tables are lists, arrays or tensors. Those of the device are not waited for if `rows` is given. There is no copy on
        the host and no allocation then. Rows are the last tokens of their sequences. Raises PlanError; for what tables
        hold, see `DeviceStep.fault`."""
        starts, ends = _table("q_start", q_start), _table("lengths", lengths)
        pages = _table("block_table", block_table)
        shapes = starts.shape, ends.shape, pages.shape
        if shapes != self._shapes:  # Steps of equal sizes are often many.
            self._check(*shapes)
        rows = int(starts[-1]) if rows is None else whole("rows", rows, 0)
        longest = rows if longest is None else whole("longest", longest, 0)
        if self._latest[0] != (rows, longest):
            self._latest = (rows, longest), self._size(rows), self._spread(rows, longest)
        _, size, spread = self._latest
        in_place = self._in_place and self._has_all_columns and self._is_kept(pages)
        self._copy(starts, ends, None if in_place else pages)
        self._steps += 1
        for key, planned in self._planned.items():
            if key[1] == size and key[3] is in_place:  # Graphs may have launches of another spread.
                planned.plan.remake()
        return DeviceStep(self, self._steps, rows, size, spread, in_place)

    def _check(self, starts: tuple[int, ...], ends: tuple[int, ...], pages: tuple[int, ...]) -> None:
        """Refuse tables of other shapes than a step has, and find the views that tables of these shapes are copied into."""
        count = ends[0] if ends else 0
        if len(ends) != 1 or count > self.sequences:
            legal = f"[sequences], at most {self.sequences}, as these plans were made for"
            raise expected(PlanError, "lengths", legal, list(ends), nearest=self.sequences)
        if starts != (count + 1,):
            raise expected(PlanError, "q_start", f"[{count + 1}], one more than lengths", list(starts))
        if len(pages) != 2 or pages[0] != count:
            raise expected(PlanError, "block_table", f"[{count}, pages]", list(pages))
        if not self.tables:
            self._make_tables(pages[1])
        assert self.pages is not None
        q_start, lengths, block_table = self.tables.values()
        columns = min(pages[1], self.pages)
        self._views = q_start[: count + 1], lengths[:count], block_table[:count, :columns]
        self._rest = ()
        if count < self.sequences:
            self._rest = q_start[count + 1 :], q_start[count], lengths[count:]
        self._columns = columns if columns < pages[1] else None
        self._has_all_columns = pages[1] == self.pages
        self._past = block_table[:count, columns:]  # Earlier steps wrote these columns.
        self._shapes = starts, ends, pages

    def _make_tables(self, columns: int) -> None:
        self.pages = max(columns, 1)
        like: dict[str, Any] = {"dtype": torch.int32, "device": self.device}
        self.tables |= {
            "q_start": torch.zeros(self.sequences + 1, **like),
            "kv.lengths": torch.zeros(self.sequences, **like),
            "kv.block_table": torch.zeros(self.sequences, self.pages, **like),
        }

    def _is_kept(self, pages: Tensor) -> bool:
        """Whether a block table is read where it lies. The first one that a step has is, if it may be."""
        lies = pages.data_ptr(), pages.stride(), pages.dtype
        if self._lies is None and pages.numel():
            self._lies = lies
            like = self.tables["kv.block_table"]
            apart = pages.storage_offset() + like.numel()
            if (pages.dtype, pages.device, pages.stride()) == (
                like.dtype,
                like.device,
                like.stride(),
            ) and apart * like.element_size() <= pages.untyped_storage().nbytes():
                self._kept = pages.as_strided(like.shape, like.stride())
        return self._kept is not None and lies == self._lies

    def _copy(self, starts: Tensor, ends: Tensor, pages: Tensor | None) -> None:
        """Sequences that are missing have no rows and no tokens."""
        first, tokens, table = self._views
        first.copy_(starts, True)
        tokens.copy_(ends, True)
        if pages is not None:
            table.copy_(pages if self._columns is None else pages[:, : self._columns], True)
            if self._past.numel():
                self._past.fill_(-1)
        if self._rest:
            after, end, missing = self._rest
            after.copy_(end)
            missing.zero_()

    def _size(self, rows: int) -> int:
        return next((size for size in self.sizes if size >= rows), 1 << max(rows - 1, 0).bit_length())

    def _spread(self, rows: int, longest: int) -> int:
        """Rows of a sequence at most, as planners are chosen by."""
        return 1 if longest <= 1 else min(_FEW, self._size(rows)) if longest <= _FEW else self._size(rows)

    def _of(
        self, step: DeviceStep, kernel: Kernel, q: Tensor, pages: Sequence[Tensor], tensors: Mapping[str, Any]
    ) -> _Planned:
        """Return the plan of a step. The first step of a size allocates, and may not be captured."""
        key = kernel, step.size, step.spread, step.in_place
        planned = self._planned.get(key)
        if planned is None:
            planned = self._planned[key] = self._plan(step, kernel, q, pages, tensors)
        if step.rows > (most := planned.size):
            legal = f"at most {most}, the tokens of {self.sequences} sequences of {self.pages} pages"
            raise expected(PlanError, "rows", legal, step.rows, nearest=most)
        return planned

    def _plan(
        self, step: DeviceStep, kernel: Kernel, q: Tensor, pages: Sequence[Tensor], tensors: Mapping[str, Any]
    ) -> _Planned:
        """Plan the largest step: all sequences of the greatest length, and so many rows in each until there are none. It
        has no more rows than the tables have room for tokens."""
        assert self.pages is not None
        check_kind(kernel, pages)
        if isinstance(pages, PackedPages):
            legal = "pages without metadata of each token, as Layer(device_plan=True) has them"
            raise expected(PlanError, "pages", legal, pages.packing.format)
        tokens = self.pages * pages[0].shape[1]
        size = min(step.size, self.sequences * tokens)
        each = min(max(step.spread, -(-size // self.sequences)), tokens)
        batch: dict[str, Any] = {
            "q": (q.dtype, (size, *q.shape[1:])),
            "q_start": numpy.minimum(numpy.arange(self.sequences + 1) * each, size).astype(numpy.int32),
            "kv.lengths": numpy.full(self.sequences, tokens, numpy.int32),
            "kv.block_table": numpy.zeros((self.sequences, self.pages), numpy.int32),
        }
        parts = kernel._parts["kv"]
        batch |= {part: (x.dtype, tuple(x.shape)) for part, x in zip(parts, pages, strict=False)}
        batch |= {name: (x.dtype, tuple(x.shape)) for name, x in tensors.items()}
        planner = kernel.device_planner(batch, **self.options)
        tables = self.tables | ({"kv.block_table": self._kept} if step.in_place else {})
        return _Planned(planner, planner.plan(tables), size)


def _table(name: str, table: object) -> Tensor:
    if isinstance(table, Tensor) and table.dtype in _INTEGERS:
        return table
    try:
        found = table if isinstance(table, Tensor) else torch.as_tensor(numpy.asarray(table))
    except (TypeError, ValueError, RuntimeError):
        raise expected(PlanError, name, "int32 or int64", table) from None
    if not found.numel():
        found = found.to(torch.int32)
    if found.dtype not in _INTEGERS:
        raise expected(PlanError, name, "int32 or int64", found.dtype)
    return found


@dataclass(slots=True, eq=False)
class DeviceStep:
    """A step's tables on the device; `DevicePlans.step` returns it. It runs until the next step of the same
    `DevicePlans`; captured launches run again after each later step of the same size."""

    plans: DevicePlans
    number: int
    rows: int
    """The number of rows of its tensors."""
    size: int
    """The number of rows of its launches, if the tables have as many tokens."""
    spread: int
    """The most rows of a sequence that its kernel was chosen for."""
    in_place: bool
    """Whether its block table is read where it lies."""

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
        pages    (k_pages, v_pages), or with 8-bit floats (k_pages, v_pages, k_scales, v_scales), scales float32 [1]
        out      [rows or more, q_heads, head_dim]; rows of no sequence are not written
        output_scales  float32 [rows or more, q_heads], of a layer with output_scales="head"; written as `out` is
        tensors  sink_logits, slopes: float32 [q_heads], and output_scale: float32 [1], if the layer has them

        Returns out, or a new tensor of the step's rows; of a layer with output_scales="head" (out, output_scales). Waits
        for nothing. Raises PlanError, TensorError."""
        if self.number != self.plans._steps:
            raise PlanError(
                "step: its plans are a later step's now; keep DevicePlans for each step that runs beside another"
            )
        for name, given in (("q", q), ("out", out), ("output_scales", output_scales)):
            if given is not None and len(given) < self.rows:
                raise expected(TensorError, name, f"{self.rows} rows or more", given)
        q = q[: self.rows]
        planned = self.plans._of(self, kernel, q, pages, tensors)
        results = {"out": ("o", out)}
        if kernel._has_scales or output_scales is not None:
            results["output_scales"] = ("output_scales", output_scales)
        given = {
            argument: self._zeros(kernel, name, q) if tensor is None else tensor
            for argument, (name, tensor) in results.items()
        }
        if planned.size == self.rows:
            into = {name: tensor[: self.rows] for name, tensor in given.items()}
            kernel.run(q, tuple(pages), planned.plan, **into, **tensors)
        else:
            padded = planned.rows("q", q)
            padded[: self.rows].copy_(q)
            into = {name: planned.rows(f"{name} of {tensor.dtype}", tensor) for name, tensor in given.items()}
            for name, tensor in given.items():  # Rows that the plan has no task for stay as they are.
                into[name][: self.rows].copy_(tensor[: self.rows])
            kernel.run(padded, tuple(pages), planned.plan, **into, **tensors)
            for name, tensor in given.items():
                tensor[: self.rows].copy_(into[name][: self.rows])
        return (given["out"], given["output_scales"]) if kernel._has_scales else given["out"]

    def _zeros(self, kernel: Kernel, result: str, q: Tensor) -> Tensor:
        binding = kernel._tensors[result]
        return q.new_zeros(self.rows, *binding.dims[1:], dtype=torch_dtype(torch, binding.dtype))

    @property
    def fault(self) -> str:
        """The error in the tables, and its sequence; "" if there is none. Waits for the device. With a fault the
        step's results are not written."""
        known = self.plans._planned.items()
        of_size = (each.plan.fault for key, each in known if key[1] == self.size and key[3] is self.in_place)
        return next((fault for fault in of_size if fault), "")
