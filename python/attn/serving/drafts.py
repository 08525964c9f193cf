# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that verify drafts: the last rows of each sequence are a tree of speculated tokens.

A row sees the tokens in front of the drafts, its ancestors and itself. Numbered depth first, the rows that see a token are a
range, the token and its descendants. So each draft is an instance of a second operand, a page of one token anywhere in the
pool, and no mask is stored. Rows are put into that order in front of a kernel, and results back behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import PlanError, SpecError, TensorError, expected
from ..memory.tables import int32_array
from ..run.kernel import Kernel
from ..run.kernels import compile as compile_kernel
from ..run.plan import Plan
from .layers import Layer


def compile_drafts(layer: Layer, device: object) -> Kernel:
    """Compile the kernel of a layer for steps of drafts. `device`: as of Layer.compile. SpecError for a packed format, whose
    tokens are in no pages of one token."""
    if layer.is_packed:
        legal = "None, fp8_e4m3 or fp8_e5m2 for steps of drafts"
        raise expected(SpecError, "format", legal, layer.format)
    spec = layer.spec()
    [store] = spec.kv
    tokens = replace(store, name="draft", page_size=1)
    return compile_kernel(
        replace(spec, kv=[store, tokens]), device="host" if str(device) == "cpu" else device
    )


def parents_of(seen: object) -> numpy.ndarray:
    """Return the parents in trees of drafts, as int32 [sequences, drafts]: the draft that each follows, or -1.

    seen  bool [sequences, drafts, drafts]: whether a draft (the second axis) sees another, which is itself or an ancestor.
          Ancestors come before their descendants

    Raises PlanError for a mask that is of no tree."""
    mask = numpy.asarray(seen.cpu() if isinstance(seen, Tensor) else seen, dtype=bool)
    if mask.ndim != 3 or mask.shape[1] != mask.shape[2]:
        raise expected(PlanError, "seen", "[sequences, drafts, drafts]", list(mask.shape))
    at = numpy.arange(mask.shape[1])
    ancestors = mask & (at < at[:, None])
    parents = numpy.where(ancestors.any(-1), mask.shape[1] - 1 - ancestors[..., ::-1].argmax(-1), -1)
    whole = numpy.zeros((len(mask), len(at) + 1, len(at)), dtype=bool)  # The last row is of no draft.
    for i in at:
        whole[:, i] = whole[numpy.arange(len(mask)), parents[:, i]] | (at == i)
    wrong = numpy.argwhere(whole[:, :-1] != mask)
    if len(wrong):
        sequence, row, column = wrong[0].tolist()
        legal = f"a tree's mask: draft {row} of sequence {sequence} {'sees' if whole[sequence, row, column] else 'does not see'} "
        raise PlanError(f"seen: expected {legal}draft {column}, as its parent {parents[sequence, row]} does")
    return parents.astype(numpy.int32)


class DraftPlans:
    """The plans of steps of drafts, of the layers that read one block table, by kernel. Not for several threads at once."""

    def __init__(self) -> None:
        self.kept: dict[Kernel, Plan] = {}
        self._latest: dict[Kernel, DraftStep] = {}

    def step(
        self, q_start: object, lengths: object, block_table: object, slots: object, parents: object
    ) -> DraftStep:
        """Return the step of a batch.

        q_start      integers [sequences + 1]: the first row of each sequence, and the number of rows
        lengths      integers [sequences]: tokens of each sequence, with those of the step, which are the last
        block_table  integers [sequences, pages], of the tokens in front of the drafts
        slots        integers [rows]: where the token of each row is in the pool
        parents      integers [rows]: the row of the same sequence, counted from its first, that a row follows, and which
                     comes before it; -1 for the tokens in front of the drafts

        Tables are lists, arrays or tensors, which are copied. The call waits for a table on a GPU. Raises PlanError."""
        return DraftStep(self, q_start, lengths, block_table, slots, parents)


class DraftStep:
    """A step of drafts; `DraftPlans.step` returns it. It runs until a later step of the same `DraftPlans` takes its plan."""

    def __init__(
        self,
        plans: DraftPlans,
        q_start: object,
        lengths: object,
        block_table: object,
        slots: object,
        parents: object,
    ):
        given = dict(q_start=q_start, lengths=lengths, block_table=block_table, slots=slots, parents=parents)
        found = {name: int32_array(name, table).copy() for name, table in given.items()}
        self.q_start, self.lengths, self.block_table = (
            found[name] for name in ("q_start", "lengths", "block_table")
        )
        count = len(self.lengths)
        if self.lengths.ndim != 1 or self.q_start.shape != (count + 1,):
            raise expected(PlanError, "q_start", f"[{count + 1}], one more than lengths", self.q_start)
        if self.block_table.ndim != 2 or len(self.block_table) != count:
            raise expected(PlanError, "block_table", f"[{count}, pages]", self.block_table)
        self.rows = int(self.q_start[-1])
        """The number of query rows."""
        if self.q_start[0] or (numpy.diff(self.q_start) < 0).any():
            raise expected(PlanError, "q_start", "numbers that rise from 0", self.q_start.tolist())
        for name in ("slots", "parents"):
            if found[name].shape != (self.rows,):
                raise expected(PlanError, name, f"[{self.rows}], the rows of q_start", found[name])
        self._plans = plans
        self._made: dict[Kernel, Plan] = {}
        self._tables, order = _tables(*found.values())
        self._order, self._back = torch.from_numpy(order), torch.from_numpy(order.argsort())

    def run(
        self,
        kernel: Kernel,
        q: Tensor,
        pages: Sequence[Tensor],
        tokens: Sequence[Tensor],
        *,
        out: Tensor | None = None,
        output_scales: Tensor | None = None,
        **tensors: Tensor,
    ) -> Any:
        """Compute attention of a layer.

        kernel   of compile_drafts
        q        [rows or more, q_heads, head_dim]; rows past the step's are not read
        pages    as of Step.run
        tokens   the same pools in pages of one token, [slots, 1, heads, dim], with the same scales
        out      [rows or more, q_heads, head_dim]; rows past the step's are not written
        output_scales  float32 [rows or more, q_heads], of a layer with output_scales="head"
        tensors  sink_logits, slopes: float32 [q_heads], and output_scale: float32 [1], if the layer has them

        Returns out, or a new tensor of the step's rows; of a layer with output_scales="head" (out, output_scales)."""
        for name, given in (("q", q), ("out", out), ("output_scales", output_scales)):
            if given is not None and len(given) < self.rows:
                raise expected(TensorError, name, f"{self.rows} rows or more", given)
        order, back = self._order.to(q.device), self._back.to(q.device)
        q = q[: self.rows][order]
        plan = self._plan(kernel, q, pages, tokens, tensors)
        if output_scales is not None and not kernel._has_scales:
            raise TensorError("output_scales: expected None beside a layer with output_scales='tensor'")
        found = kernel.run(q, tuple(pages), tuple(tokens), plan, **tensors)
        results = [
            self._scattered(of_batch[back], into)
            for of_batch, into in zip(
                found if kernel._has_scales else (found,), (out, output_scales), strict=False
            )
        ]
        return (results[0], results[1]) if kernel._has_scales else results[0]

    def _scattered(self, found: Tensor, into: Tensor | None) -> Tensor:
        """Return the rows of a result, in `into` if it is given."""
        if into is None:
            return found
        written = into[: self.rows]
        (written.view(found.dtype) if written.dtype == torch.uint8 else written).copy_(found)
        return into

    def _plan(
        self,
        kernel: Kernel,
        q: Tensor,
        pages: Sequence[Tensor],
        tokens: Sequence[Tensor],
        tensors: dict[str, Tensor],
    ) -> Plan:
        made = self._made.get(kernel)
        if made is not None:
            if self._plans._latest[kernel] is not self:
                raise PlanError(
                    "step: its plan is a later step's now; keep DraftPlans for each step that runs beside another"
                )
            return made
        batch: dict[str, Any] = {"q": (q.dtype, tuple(q.shape))} | self._tables
        for operand, given in (("kv", pages), ("draft", tokens)):
            parts = kernel._parts[operand]
            batch |= {part: (x.dtype, tuple(x.shape)) for part, x in zip(parts, given, strict=False)}
        batch |= {name: (x.dtype, tuple(x.shape)) for name, x in tensors.items()}
        plan = self._plans.kept.get(kernel)
        if plan is None:
            plan = self._plans.kept[kernel] = kernel.plan(batch)
        else:
            plan.update(batch)
        self._made[kernel], self._plans._latest[kernel] = plan, self
        return plan


def _tables(
    q_start: numpy.ndarray,
    lengths: numpy.ndarray,
    block_table: numpy.ndarray,
    slots: numpy.ndarray,
    parents: numpy.ndarray,
) -> tuple[dict[str, Any], numpy.ndarray]:
    """Return the tables of both operands, and the row at each place of the order depth first."""
    counts = numpy.diff(q_start)
    context = lengths - counts
    starts = numpy.repeat(q_start[:-1], counts)
    depth, end, place = _trees(q_start, parents, starts)
    order = numpy.empty(len(parents), dtype=numpy.int64)
    order[place] = numpy.arange(len(parents))
    position = numpy.repeat(context, counts) + depth
    some = numpy.flatnonzero((counts > 0) & (context > 0))
    if not len(some):  # An operand has an instance: one without rows.
        some = numpy.zeros(min(1, len(counts)), dtype=numpy.int64)
    return {
        "q_start": q_start,
        "q_pos": position[order].astype(numpy.int32),
        "kv.lengths": context[some],
        "kv.pos0": numpy.zeros(len(some), numpy.int32),
        "kv.rows": numpy.stack([q_start[some], q_start[some + 1]], 1),
        "kv.block_table": block_table[some],
        "draft.lengths": numpy.ones(len(order), numpy.int32),
        "draft.pos0": position[order].astype(numpy.int32),
        "draft.rows": numpy.stack([numpy.arange(len(order)), end[order]], 1).astype(numpy.int32),
        "draft.block_table": slots[order][:, None],
    }, order


def _trees(
    q_start: numpy.ndarray, parents: numpy.ndarray, starts: numpy.ndarray
) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return of each row its depth, the end of its descendants in the order depth first, and its place there."""
    counts, total, within = numpy.diff(q_start), len(parents), numpy.arange(len(parents)) - starts
    wrong = numpy.flatnonzero((parents < -1) | (parents >= within))
    if len(wrong):
        row = int(wrong[0])
        legal = f"-1 or a row before row {within[row]} of its sequence for row {row}"
        raise expected(PlanError, "parents", legal, int(parents[row]), nearest=int(within[row]) - 1)
    parent = numpy.where(
        parents < 0, total + numpy.repeat(numpy.arange(len(counts)), counts), starts + parents
    )
    depth, size = numpy.full(total + len(counts), -1), numpy.ones(total + len(counts), dtype=numpy.int64)
    taken, place = numpy.zeros(total + len(counts), dtype=numpy.int64), numpy.zeros(total, dtype=numpy.int64)
    offsets = [numpy.flatnonzero(within == i) for i in range(int(counts.max(initial=0)))]
    for rows in offsets:
        depth[rows] = depth[parent[rows]] + 1
    for rows in reversed(offsets):  # Rows at one offset are of different sequences.
        size[parent[rows]] += size[rows]
    first = numpy.concatenate([place, q_start[:-1] - 1])
    for rows in offsets:
        above = parent[rows]
        place[rows] = first[rows] = first[above] + 1 + taken[above]
        taken[above] += size[rows]
    return depth[:total], place + size[:total], place
