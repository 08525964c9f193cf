# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding steps over caches of fixed size, planned on the device.

Only the GPU knows how far a static cache is filled and where its padding ends, and the host does not ask. PyTorch's
operations turn the mask into the start and length of each head's keys. A kernel makes the plan from them, once for all
layers, and layers read tensors: a step waits for nothing, and a CUDA graph of the model replays over any step.

The prompt shows the form of layers, and that its padding has no holes. Each step reports later, without waiting,
whether that still held; if a step hid tokens between others, the next one raises an error.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import TensorError
from ..run.device_plan import DevicePlan, DevicePlanner, blocks_on
from .rows.padded_calls import padded_kernel


@dataclass(frozen=True)
class LayerKind:
    """Everything that decides a layer's kernel, beside its visibility."""

    q_heads: int
    kv_heads: int
    dim: int
    value_dim: int
    dtype: torch.dtype
    scale: float
    softcap: float
    numerics: str | None = None


class Model:
    """The known forms of a model's layers, and the masks of a generation so far."""

    def __init__(self) -> None:
        self.kinds: dict[str, LayerKind | None] = {}
        """The form of layers that see so, by the text of a Visibility; None: there are several forms, or the device
        cannot plan one."""
        self.checked: dict[str, tuple[int, int]] = {}
        """Sequences and positions of the last mask without holes."""
        self.pending: list[tuple[Tensor, object, int]] = []
        """For each check on its way to the host: shown tokens plus hidden ones before them; its event; the expected sum
        if some are shown."""


_fixed = WeakIdKeyDictionary()
"""For masks that stay as they are from step to step: the first token shown of each sequence, i32[batch, 1], or
StepPlans."""


class StepPlans(Protocol):
    """Steps that are planned apart from their masks."""

    def step(self, see: str) -> PlannedStep | None: ...


def fix_mask(mask: Tensor, shows: Tensor | StepPlans) -> None:
    """Declare what a mask shows in every step, whatever it holds: the host has checked it. Recorded steps are planned
    by it.

    shows  the first token of each sequence, i32[batch, 1] on the device, for a mask of all positions of a static cache,
           which shows all tokens after it; or plans of tokens in pages, for a mask that has one column
    """
    _fixed[mask] = shows


_models: dict[int, tuple[weakref.ref, Model]] = {}


def model_of(config: object) -> Model:
    """Return the state of a model, by the configuration that its layers and its masks share."""
    known = _models.get(id(config))
    if known is None or known[0]() is not config:
        forget = functools.partial(_forget, id(config))
        known = _models[id(config)] = weakref.ref(config, forget), Model()
    return known[1]


def _forget(key: int, config: weakref.ref) -> None:
    _models.pop(key, None)


def learn(config: object, see: str, kind: LayerKind | None) -> None:
    """Record a layer's form."""
    kinds = model_of(config).kinds
    if kinds.setdefault(see, kind) != kind:
        kinds[see] = None


@dataclass(frozen=True)
class PlannedStep:
    """A plan in device memory, and the int32 tensors that it was made from, which a compiled model takes as inputs."""

    handle: str
    """The name of its planner. Compiled code takes a changing number for a symbol, and must know the planner."""
    lengths: Tensor
    plan: Tensor | None = None
    start: Tensor | None = None
    """None if keys are in pages: their planner has the plan, and tables beside lengths."""

    @property
    def in_pages(self) -> bool:
        return self.plan is None

    def spans(self) -> Tensor:
        """Return the spans as of spans.py, on the host; waits for the device. TensorError if keys are in pages."""
        if self.plan is None or self.start is None:
            raise TensorError(
                "attention_mask: the model computes with it itself, and keys before this step are in attn's pages; take "
                "model.generate, or a decoder without pages"
            )
        made = _planners[self.handle]
        batch, heads = made.batch, made.kind.kv_heads
        begin = (self.start[:-1] - made.start[:-1]).view(batch, heads)[:, 0]
        end = begin + self.lengths.view(batch, heads)[:, 0]
        return torch.stack([begin, end, -begin, end - 1 - begin], 1).cpu()


@dataclass
class _Planner:
    planner: DevicePlanner
    kind: LayerKind
    see: str
    batch: int
    start: Tensor
    """The index of each head's first key in memory."""
    last: tuple[Tensor, DevicePlan] | None = None


_planners: dict[str, _Planner] = {}  # Graphs read their memory: they live as long as the process.
_handles: dict[tuple, str] = {}
_numbers = itertools.count(1)


def plan_step(
    config: object,
    see: str,
    batch: int,
    kv_length: int,
    q_offset: Tensor,
    kv_offset: int,
    mask: Tensor | None,
    device: torch.device,
) -> PlannedStep | None:
    """Return the plan of one row for each sequence, or None if the host has to look at this step.

    q_offset  position of the row, an integer on the device; kv_offset of the first key
    mask      bool[batch, positions] or None: True for positions that are not padding
    """
    model = model_of(config)
    kind = model.kinds.get(see)
    fixed = None if mask is None else _fixed.get(mask)
    if isinstance(fixed, Tensor):
        return (
            None if kind is None else _plan(kind, see, batch, kv_length, q_offset, kv_offset, fixed, device)
        )
    if fixed is not None:
        return fixed.step(see)
    _raise_late(model)
    checked = model.checked.pop(see, None)
    positions = 0 if mask is None else mask.shape[1]
    if (
        kind is None
        or (mask is not None and checked != (batch, positions - 1))
        or positions > kv_offset + kv_length
    ):
        return None
    model.checked[see] = batch, positions
    first: Tensor | int = 0
    if mask is not None:
        shown = mask[:, kv_offset:]
        count = shown.sum(1)
        _look_later(model, shown.view(torch.uint8).argmax(1).add_(count), shown.shape[1])
        # Past all tokens if all are padding so far.
        first = (shown.shape[1] - count).to(torch.int32)[:, None]
    return _plan(kind, see, batch, kv_length, q_offset, kv_offset, first, device)


def _plan(
    kind: LayerKind,
    see: str,
    batch: int,
    kv_length: int,
    q_offset: Tensor,
    kv_offset: int,
    first: Tensor | int,
    device: torch.device,
) -> PlannedStep:
    handle = _handle_of(kind, see, batch, kv_length, device)
    made = _planners[handle]
    heads = made.start[:-1].view(batch, kind.kv_heads)
    end = (q_offset + (1 - kv_offset)).to(torch.int32)
    lengths = torch.sub(end, torch.zeros_like(heads).add_(first)).clamp_(min=0)
    start = made.start.clone()
    start[:-1].view_as(heads).add_(first)
    lengths = lengths.view(-1)
    plan = torch.empty(made.planner.nbytes // 4, dtype=torch.int32, device=device)
    made.last = plan, made.planner.plan({"kv.start": start, "kv.lengths": lengths}, out=plan)
    return PlannedStep(handle, lengths, plan, start)


def note_checked(config: object, see: str, mask: Tensor | None) -> None:
    """Record that the host has checked a mask, which hides nothing between tokens."""
    if mask is not None:
        model_of(config).checked[see] = tuple(mask.shape)


def attend_step(q: Tensor, k: Tensor, v: Tensor, step: PlannedStep) -> Tensor:
    """Compute `q [batch, q_heads, 1, dim]` over `k, v [batch, kv_heads, tokens, dim]`; returns [batch, 1, q_heads,
    value_dim]. Copies keys and values with another memory layout."""
    made = _planners[step.handle]
    kind, count = made.kind, made.batch * made.kind.kv_heads
    if made.last is not None and made.last[0] is step.plan:
        plan = made.last[1]
    else:
        tables = {"plan": step.plan, "kv.start": step.start, "kv.lengths": step.lengths}
        plan = DevicePlan(made.planner, tables, 0)
    rows = q.reshape(count, kind.q_heads // kind.kv_heads, kind.dim)
    keys, values = k.reshape(-1, 1, kind.dim), v.reshape(-1, 1, kind.value_dim)
    out = made.planner.kernel.run(rows, (keys, values), plan)
    return out.view(made.batch, 1, kind.q_heads, kind.value_dim)


def fits(handle: str, kind: LayerKind, see: str) -> bool:
    """Whether the plans of a planner serve such layers."""
    made = _planners[handle]
    return (made.kind, made.see) == (kind, see)


def _handle_of(kind: LayerKind, see: str, batch: int, tokens: int, device: torch.device) -> str:
    key = kind, see, batch, tokens, str(device)
    if key not in _handles:
        handle = f"planner {next(_numbers)}"
        _planners[handle] = _make_planner(kind, see, batch, tokens, device)
        _handles[key] = handle
    return _handles[key]


def _make_planner(kind: LayerKind, see: str, batch: int, tokens: int, device: torch.device) -> _Planner:
    """Make a planner in which each KV head of a sequence is a sequence of its own: static caches keep its keys
    contiguous."""
    group, count = kind.q_heads // kind.kv_heads, batch * kind.kv_heads
    dims = kind.dim, kind.value_dim
    kernel = padded_kernel(
        group,
        1,
        dims,
        kind.dtype,
        kind.scale,
        see,
        kind.softcap,
        False,
        (),
        str(device),
        planned=True,
        numerics=kind.numerics,
    )
    start = numpy.arange(count + 1, dtype=numpy.int32) * tokens
    largest = {
        "q": (kind.dtype, (count, group, kind.dim)),
        "kv.k": (kind.dtype, (count * tokens, 1, kind.dim)),
        "kv.v": (kind.dtype, (count * tokens, 1, kind.value_dim)),
        "q_start": numpy.arange(count + 1, dtype=numpy.int32),
        "kv.start": start,
        "kv.lengths": numpy.full(count, tokens, numpy.int32),
    }
    planner = kernel.device_planner(largest, tokens=tokens, blocks=blocks_on(device))
    return _Planner(planner, kind, see, batch, torch.from_numpy(start).to(device))


def _look_later(model: Model, counted: Tensor, positions: int) -> None:
    if counted.is_cuda:
        found = torch.empty(counted.shape, dtype=counted.dtype, pin_memory=True)
        found.copy_(counted, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        model.pending.append((found, event, positions))
    else:
        model.pending.append((counted, None, positions))
        _raise_late(model)


def _raise_late(model: Model) -> None:
    while model.pending and (model.pending[0][1] is None or model.pending[0][1].query()):  # type: ignore[attr-defined]
        found, _, positions = model.pending.pop(0)
        wrong = ((found != positions) & (found != 0)).nonzero()  # 0: all is padding so far.
        if len(wrong):
            model.pending.clear()
            model.checked.clear()
            raise TensorError(
                f"attention_mask[{int(wrong[0])}]: expected what it was in the step before, and one token more, got padding "
                "between tokens, and the step that it was given for took those for seen; start again from the prompt, or "
                "take a dynamic cache, under which masks may change"
            )
