# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares attend's calls, once for arguments of one form: kernel, plan, and the index of each tensor."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import _attn
from ..describe.forest import Forest
from ..errors import PlanError, TensorError
from ..memory.dtypes import DTYPES
from ..memory.layouts import merged_rows, overlaps, swapped
from ..memory.tensors import contiguous, empty, swap_axes, written
from ..memory.views import check, span, strided, tensors_of, view_of
from .arrange import Arrangement
from .described_calls import Options, as_bfloat16, describe_call
from .kernels import compile
from .launches import clock, form_of

_pinned: list[Call] = []


@dataclass
class Call:
    """A kernel, its plan, and the mapping from tensors of one form to the kernel's bindings."""

    arrangement: Arrangement
    kernel: Any
    plan: Any
    """None if there is nothing to attend to."""
    stream: int
    nbytes: tuple[int, ...]
    places: tuple[int, ...]
    """For each binding of the kernel, the index of its address in (q, k, v, the rest, o, lse, output_scales or kv.significance)."""
    strides: tuple | None
    """Strides of each binding in bytes; None for a dense one, and if all are dense."""
    dtype: str
    """The dtype of outputs."""
    device: str
    return_lse: bool
    scales: bool
    """Whether the scales of the output are a result."""
    worth: tuple[int, ...] | None
    """Shape of the requested significance: the shape of keys without features."""
    gradient: bool
    names: tuple[str, ...]
    """Names of the tensors that are read: q, k, v and the rest."""
    lock: Any = field(default_factory=threading.Lock)
    alive: bool = True
    """False once another call has taken the plan."""
    pinned: bool = False
    """Whether a graph has captured the plan."""
    used: int = 0

    def run(self, q: Any, k: Any, v: Any, views: list, out: Any, keep: list, gate: Any = None) -> Any:
        made = self.arrangement
        if self.gradient:
            _refuse_gradients(views)
        nbytes, strides = self.nbytes, self.strides
        addresses, given = [address for address, _ in views], out
        if made.copies_q:
            q = contiguous(q, made.swapped)
            addresses[0] = view_of("q", q, self.stream, keep)[0]
        if made.copies_gate:
            copied = contiguous(gate, made.swapped)
            addresses[self.names.index("gate")] = view_of("gate", copied, self.stream, keep)[0]
        if out is None:
            result = empty(q, made.shape, self.dtype)
            out = swap_axes(result) if made.swapped else result
            addresses.append(view_of("out", result, self.stream, keep)[0])
        else:
            address, lies = self._check_out(view_of("out", out, self.stream, keep), views)
            addresses.append(address)
            if lies:
                nbytes, strides = self._with_out(lies)
        if self.return_lse or self.worth is not None:
            lse = empty(q, made.shape[:-1], "f32")
            addresses.append(view_of("lse", lse, self.stream, keep)[0])
            if self.return_lse:
                out = (out, swap_axes(lse) if made.swapped else lse)
        if self.scales:
            scales = empty(q, made.shape[:-1], "f32")
            addresses.append(view_of("output_scales", scales, self.stream, keep)[0])
            out = (*(out if self.return_lse else (out,)), swap_axes(scales) if made.swapped else scales)
        if self.worth is not None:
            worth = self._empty_worth(q)
            addresses.append(view_of("significance", worth, self.stream, keep)[0])
            out = (*(out if self.return_lse else (out,)), swap_axes(worth) if made.swapped else worth)
        if self.plan is not None:
            addresses = [addresses[place] for place in self.places]
            try:
                self._launch(addresses, nbytes, strides)
            except PlanError:
                if self.pinned:
                    raise
                self._pin()
                self._launch(addresses, nbytes, strides)
            if given is not None:
                written(given)
        return out

    def launch(self, given: tuple, results: Any) -> _attn.Launch | None:
        """Return the launch that repeats `run` for other tensors like `given` (q, k, v and the rest), whose results
        were `results`. None if `run` did more than to launch."""
        made = self.arrangement
        if self.plan is None or self.worth is not None or made.copies_q or made.copies_gate:
            return None
        results = results if isinstance(results, tuple) else (results,)
        likes = [form_of(tensor) for tensor in results]
        if any(like is None for like in likes):
            return None
        first = len(self.names)
        given_places = [i for i, tensor in enumerate(given) if tensor is not None]
        return _attn.Launch(
            owner=self,
            plan=self.plan._native,
            lock=self.lock,
            clock=clock,
            places=[
                given_places[place] if place < first else place - first + len(given) for place in self.places
            ],
            nbytes=self.nbytes,
            strides=self.strides or (None,) * len(self.nbytes),
            likes=likes,
            device=results[0].device,
            kept=[],
            results=tuple(range(len(given), len(given) + len(results))) if len(results) > 1 else len(given),
        )

    def _empty_worth(self, q: Any) -> Any:
        """Return memory for the significance of tokens; zeros if there are no rows."""
        worth = empty(q, self.worth, "f32")
        if self.plan is None:
            worth[...] = 0
        return worth

    def _launch(self, addresses: list, nbytes: tuple, strides: tuple | None) -> None:
        try:
            self.kernel.launch(addresses, nbytes, self.plan, self.stream, strides)
        except TensorError as error:  # The message has the kernel's names.
            raise TensorError(str(error).removeprefix("kv.")) from None

    def _pin(self) -> None:
        """Keep the plan for a graph. The stream is being captured: no other call may get the plan, which the graph
        reads for as long as it lives, and nothing reports when the graph is freed."""
        self.plan.fix()
        self.pinned = True
        _pinned.append(self)

    def _with_out(self, lies: tuple[int, ...]) -> tuple[tuple, tuple]:
        """Return bytes and strides of the bindings for an output with these strides."""
        place, made = self.kernel.slots.index("o"), self.arrangement
        nbytes, strides = list(self.nbytes), list(self.strides or (None,) * len(self.nbytes))
        itemsize = DTYPES[self.dtype][1]
        nbytes[place] = span((math.prod(made.shape[:-2]), *made.shape[-2:]), lies, itemsize)
        strides[place] = tuple(itemsize * stride for stride in lies)
        return tuple(nbytes), tuple(strides)

    def _check_out(self, given: tuple, views: list) -> tuple[int, tuple[int, ...] | None]:
        """Return the address of `out`, and strides of its rows, heads and features in elements, None if it is dense.
        TensorError for another shape, dtype, device or order."""
        found, made = as_bfloat16(given[1]), self.arrangement
        shape = swapped(made.shape) if made.swapped else made.shape
        is_wanted = found.dtype == self.dtype or (found.dtype == "u8" and self.dtype == "f8e4m3fn")
        if not is_wanted or found.shape != shape:
            raise TensorError(f"out: expected {DTYPES[self.dtype][0]} {list(shape)}, got {found.text()}")
        if found.device != self.device:
            raise TensorError(f"out: expected memory of {self.device}, where q is, got {found.device}")
        strides = swapped(found.strides) if made.swapped else found.strides
        steps = [math.prod(made.shape[i + 1 :]) for i in range(len(made.shape))]
        lies = None
        if any(n > 1 and stride != step for n, stride, step in zip(made.shape, strides, steps, strict=True)):
            if made.order != "[batch, heads, seq, dim]":
                lies = strides if len(strides) == 3 else merged_rows(made.shape, strides)
            if lies is None:
                raise TensorError(
                    f"out: expected memory in the order {made.order}, in which k and v lie, got strides "
                    f"{list(found.strides)} for {list(found.shape)}"
                )
        if not given[1][4]:
            raise TensorError("out: expected memory that may be written, got a read-only array")
        rows = (math.prod(made.shape[:-2]), *made.shape[-2:])
        itemsize = DTYPES[self.dtype][1]
        nbytes = span(rows, lies, itemsize) if lies else itemsize * math.prod(made.shape)
        for name, (address, signature) in zip(self.names, views, strict=True):
            read = as_bfloat16(signature)
            of_read = DTYPES[read.dtype][1] if read.dtype else 0  # A tensor of unknown dtype is never read.
            if overlaps(given[0], nbytes, address, read.shape, read.strides, of_read):
                raise TensorError(
                    f"out: overlaps {name}, which other blocks still read when the first results are written"
                )
        return given[0], lies


def _refuse_gradients(views: list) -> None:
    if sys.modules["torch"].is_grad_enabled():
        i = next(i for i, (_, signature) in enumerate(views) if signature[5])
        raise TensorError(
            f"{'qkv'[i] if i < 3 else 'tensors'}: requires a gradient, which only attn.attend itself passes on; call that, "
            "call under torch.no_grad(), or detach it"
        )


# A forest has enough rows for each to read nodes for itself. A plan that might share nodes reserves a partial
# for each row and node above it: for a deep tree more memory than there is.
_MOST_SHARED = 2


def make_call(
    options: Options,
    views: list,
    tables: tuple,
    forest: Forest | None,
    stream: int,
    spare_plan: Callable,
) -> Call:
    """Check everything, compile, and plan. `spare_plan` gives the plan of a call that is not needed any more, or None.
    Raises SpecError or TensorError."""
    made, spec = describe_call(options, views, tables, forest)
    q = as_bfloat16(views[0][1])
    rows = made.operands["q"][1][0]
    extras = {name: signature for name, (_, signature) in zip(options.names, views[3:], strict=True)}
    kernel = compile(spec, device=q.device)
    bindings = tensors_of(kernel.manifest)
    if options.gate:
        extras.pop("gate")  # arrange_gate has checked it.
    nbytes = {name: check(bindings[name], extras[name], {}, q.device) for name in extras if name in bindings}
    for name in ("q", "kv.k", "kv.v"):
        shape, lies = made.operands[name][1], made.strides.get(name)
        nbytes[name] = span(shape, lies, 2) if lies else 2 * math.prod(shape)
    if options.gate:
        line = made.shape if spec.gate == "elementwise" else made.shape[:-1]
        lies = made.strides.get("gate")
        rows_of_gate = (math.prod(made.shape[:-2]), *made.shape[-2:])
        nbytes["gate"] = span(rows_of_gate, lies, 2) if lies else 2 * math.prod(line)
    dtype = bindings["o"].dtype
    nbytes["o"], nbytes["lse"] = DTYPES[dtype][1] * math.prod(made.shape), 4 * math.prod(made.shape[:-1])
    worth = made.operands["kv.k"][1][:-1] if options.significance is not None else None
    nbytes["output_scales"] = nbytes["lse"]
    nbytes["kv.significance"] = 4 * math.prod(worth or ())
    batch = made.operands | {
        name: ("f32", strided(extras[name]).shape) for name in extras if name in bindings
    }
    plan = None
    if rows:
        if forest is not None and forest.shared_rows > _MOST_SHARED * forest.tokens:
            plan = kernel.plan(batch, strategy="by-query", stream=stream)
        elif (plan := spare_plan(kernel, stream)) is None:
            plan = kernel.plan(batch, stream=stream)
        else:
            plan.update(batch, stream=stream)
    lie = {name: tuple(2 * stride for stride in found) for name, found in made.strides.items()}
    of_rows = ("lse",) if options.return_lse or worth is not None else ()
    last = "output_scales" if options.output_scales else "kv.significance"
    order = ("q", "kv.k", "kv.v", *options.names, "o", *of_rows, last)
    places = {name: i for i, name in enumerate(order)}
    return Call(
        arrangement=made,
        kernel=kernel,
        plan=plan,
        stream=stream,
        nbytes=tuple(nbytes[name] for name in kernel.slots),
        places=tuple(places[name] for name in kernel.slots),
        strides=tuple(lie.get(name) for name in kernel.slots) if lie else None,
        dtype=dtype,
        device=q.device,
        return_lse=options.return_lse,
        scales=options.output_scales,
        worth=worth,
        gradient=any(signature[5] for _, signature in views),
        names=(
            *"qkv",
            *(f"tensors[{name!r}]" if name in options.tables() else name for name in options.names),
        ),
    )
