# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of a padded batch, prepared once for all layers of a step.

A model calls attention once for each layer, with tensors that differ only in their addresses. A PaddedCall keeps what
was found out about them: the kernel, the plan, the memory layout of keys, and whether a kernel may read them in place.
A layer then costs the allocation of its result and the launches.
"""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from ...describe.classes import heads
from ...describe.functions import softcap as capped
from ...describe.spec import Spec
from ...describe.stores import Packed, Store
from ...describe.visibility import all_tokens, read_visibility, recent, sink
from ...memory.devices import stream_number
from ...memory.views import View, view_of
from ...run.kernel import Kernel
from ...run.kernels import compile
from ...run.plan import Plan
from .padded_batches import PaddedBatch, Visible


@dataclass(frozen=True)
class Scores:
    """How scores are changed: `softcap` of 0 is none; `streaming` is (sink, recent) of the heads of class 1. `numerics`:
    as of attn.Spec."""

    scale: float
    softcap: float
    classes: tuple[int, ...] = ()
    streaming: tuple[int, ...] = ()
    numerics: str | None = None


class PaddedCall:
    """Attention of tensors of one form, with one plan.

    q        [batch, q_heads, rows, dim]
    k, v     [batch, kv_heads, tokens, dim]
    sinks    f32[q_heads] or None

    Returns [batch, rows, q_heads, value_dim]. Keys and values are read in place if they are contiguous in this order or
    in [batch, tokens, kv_heads, dim] (with sinks or classes only in the latter), and are copied otherwise.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, visible: Visible, scores: Scores
    ):
        batch, q_heads, rows, dim = q.shape
        kv_heads, tokens = k.shape[1:3]
        # If the keys of each KV head are contiguous, a head is a sequence of its own.
        self.per_head = sinks is None and not scores.classes and not k.transpose(1, 2).is_contiguous()
        self.inside = 1 if self.per_head else kv_heads
        self.group = q_heads // kv_heads
        self.shape = batch, rows, q_heads, v.shape[3]
        self.kernel = padded_kernel(
            self.group * self.inside,
            self.inside,
            (dim, v.shape[3]),
            q.dtype,
            scores.scale,
            visible.see,
            scores.softcap,
            sinks is not None,
            scores.streaming if scores.classes else (),
            str(q.device),
            numerics=scores.numerics,
        )
        self.stream = stream_number(self.kernel.device, None)
        self._place = self.kernel, self.stream
        counts = batch, kv_heads // self.inside, rows, tokens, v.shape[3]
        classes = tuple(sorted(scores.classes))
        self._entry = _plan(self.kernel, self.stream, q.dtype, visible, classes, counts)
        self.plan = self._entry.plan
        self._reordered = self.kernel._order != [0, 1, 2, 3]
        views = [self.plan._view_classes(scores.classes)] if self.kernel._has_classes else []
        self._class_address = [address for address, _ in views]
        # In the next step only tokens are more, if keys and values are contiguous.
        dense = self.per_head and k.is_contiguous() and v.is_contiguous()
        alike = (self.shape, dim, q.stride()) if dense else None
        before, *bound = self._entry.bound
        if alike is not None and before == alike:
            self.copies, self._by_head, self._made, self._strides, sizes = bound
            more = {"kv.k": k.nbytes, "kv.v": v.nbytes}
            slots = zip(self.kernel.slots, sizes, strict=True)
            self._nbytes = tuple(more.get(name, size) for name, size in slots)
        else:
            self._bind(q, k, v, sinks, views)
        self._entry.bound = alike, self.copies, self._by_head, self._made, self._strides, self._nbytes

    def _bind(self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, classes: list[View]) -> None:
        """Find out whether tensors can be read in place, and everything that a launch needs beside their addresses."""
        arranged = self._arrange(q, k, v)
        self.copies = any(a.data_ptr() != b.data_ptr() for a, b in zip(arranged, (q, k, v), strict=True))
        flat = (arranged[0].shape[0], self.group * self.inside, self.shape[3])
        # With one row, or with contiguous heads, results are written in the final order.
        self._by_head = self.per_head and self.shape[1] != 1
        self._made = flat if self._by_head else self.shape
        given = [*arranged, *([] if sinks is None else [sinks]), arranged[0].new_empty(flat)]
        keep: list = []
        names = ("q", "k", "v", *(() if sinks is None else ("sink_logits",)), "out")
        views = [view_of(name, of, self.stream, keep) for name, of in zip(names, given, strict=True)]
        signatures = tuple(signature for _, signature in (*views, *classes))
        self._nbytes, self._strides = self.kernel._accept(self.plan, signatures)

    @property
    def alive(self) -> bool:
        """Whether the plan is still of this batch, in this thread."""
        try:
            return _local.plans.get(self._place) is self._entry
        except AttributeError:
            return False

    @property
    def tokens(self) -> int:
        """The number of tokens of keys and values, including those that no row sees."""
        return self._entry.wanted[-1][3]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        """Compute a layer's attention. The result is contiguous, as models that view it in other shapes expect."""
        if self.copies:
            q, k, v = self._arrange(q, k, v)
        out = q.new_empty(*self._made)  # PyTorch reads a tuple more slowly.
        addresses = [q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()]
        kernel = self.kernel
        if sinks is not None or self._class_address or self._reordered:
            if sinks is not None:
                addresses.insert(3, sinks.data_ptr())
            addresses += self._class_address
            addresses = [addresses[place] for place in kernel._order]
        kernel.launch(addresses, self._nbytes, self.plan, self.stream, self._strides)
        if not self._by_head:
            return out
        batch, rows, _, dim = self.shape
        return out.view(batch, -1, rows, self.group, dim).transpose(1, 2).contiguous().view(self.shape)

    def later(self, end: int, tokens: int) -> PaddedCall | None:
        """Return the call of a later step, whose tensors differ only in that keys and values have `tokens` tokens, of
        which rows see the first `end` of each sequence. None if tensors have to be checked again. This call is then no
        longer alive, unless it is the returned one."""
        seen, *same, sizes = self._entry.wanted
        alike = self._entry.bound[0]
        if alike is None or not isinstance(seen, int) or end < seen:
            return None
        if (end, tokens) == (seen, sizes[3]):
            return self
        del _local.plans[self._place]  # Until the plan is of the new step.
        self.plan._grow(end - seen, tokens, self.stream)
        call: PaddedCall = object.__new__(PaddedCall)
        call.__dict__.update(self.__dict__)
        call._nbytes = tuple(
            size // sizes[3] * tokens if name in ("kv.k", "kv.v") else size
            for name, size in zip(self.kernel.slots, self._nbytes, strict=True)
        )
        bound = alike, self.copies, self._by_head, self._made, self._strides, call._nbytes
        wanted = (end, *same, (*sizes[:3], tokens, *sizes[4:]))
        call._entry = _local.plans[self._place] = _Planned(self.plan, wanted, bound)
        return call

    def _arrange(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Return tensors as a kernel takes them, [rows or tokens, heads, dim]. Copies only those with another memory
        layout."""
        if self.per_head:
            batch, q_heads, rows, dim = q.shape
            q = q.reshape(batch, -1, self.group, rows, dim).transpose(2, 3)
        else:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        heads_of = self.group * self.inside, self.inside, self.inside
        return tuple(
            tensor.reshape(-1, count, tensor.shape[-1]).contiguous()
            for tensor, count in zip((q, k, v), heads_of, strict=True)
        )


@functools.lru_cache(maxsize=256)
def padded_kernel(
    q_heads: int,
    kv_heads: int,
    dims: tuple[int, int],
    dtype: torch.dtype,
    scale: float,
    see: str,
    softcap: float,
    sinks: bool,
    streaming: tuple[int, ...],
    device: str,
    store: Store | None = None,
    planned: bool = False,
    return_lse: bool = False,
    numerics: str | None = None,
) -> Kernel:
    """Return the kernel of a layer, by the names that models use for parameters. `see`: the text of a Visibility;
    `streaming`: (sink, recent); `planned`: with a kernel that plans on the device; `return_lse`: as gradients need it."""
    spec = Spec(
        q_heads=q_heads,
        kv_heads=kv_heads,
        head_dim=dims[0],
        value_dim=dims[1],
        dtype=dtype,
        kv=[store or Packed()],
        see=read_visibility(see),
        scale=scale,
        score=(lambda s, h, qi, ki: capped(s, softcap)) if softcap else None,
        sink_logits=sinks,
        heads=heads(retrieval=all_tokens(), streaming=sink(streaming[0]) | recent(streaming[1]))
        if streaming
        else None,
        return_lse=return_lse,
        device_plan=planned,
        numerics=numerics,
    )
    return compile(spec, device=device)


@dataclass(eq=False)
class _Planned:
    """A plan with the key of its last update, and the facts about tensors with their key."""

    plan: Plan
    wanted: tuple
    bound: tuple = (None,)


_MOST_PLANS = 256  # In a thread: as many as there are kernels.
_local = threading.local()
os.register_at_fork(after_in_child=lambda: (padded_kernel.cache_clear(), _local.__dict__.clear()))


def _plan(
    kernel: Kernel,
    stream: int,
    dtype: torch.dtype,
    visible: Visible,
    classes: tuple[int, ...],
    sizes: tuple[int, ...],
) -> _Planned:
    """Return the plan of a kernel, thread and stream, updated if the batch differs. All layers of a step share it,
    except layers with other numbers of heads in each class. The key of the plan is kept beside it."""
    seen = visible.end or tuple(
        None if table is None else table.numpy().tobytes() for table in (visible.spans, visible.positions)
    )
    wanted = (seen, visible.see, classes, sizes)
    known = _local.__dict__.setdefault("plans", {})
    entry = known.get((kernel, stream))
    if entry is not None and entry.wanted == wanted:
        return entry
    batch = PaddedBatch(visible, dtype, classes, sizes)
    if entry is None:
        entry = _Planned(kernel.plan(batch), wanted)
    else:
        entry.plan.update(batch)
        entry = _Planned(entry.plan, wanted, entry.bound)
    known[kernel, stream] = entry
    if len(known) > _MOST_PLANS:  # They hold kernels.
        del known[next(iter(known))]
    return entry
