# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attend does once for arguments that look alike: description, kernel, plan, and where each tensor goes."""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..describe import visibility
from ..describe.forest import Forest
from ..describe.score import Score, tensor_shapes, trace
from ..describe.spec import Spec
from ..errors import PlanError, SpecError, TensorError, closest, expected
from ..memory.dtypes import DTYPES, no_floats, storage_name
from ..memory.layouts import merged_rows, overlaps, swapped
from ..memory.tensors import contiguous, empty, swap_axes
from ..memory.views import Strided, check, span, strided, tensors_of, view_of
from .arrange import Arrangement, arrange
from .kernels import compile


class Options(NamedTuple):
    """What decides the description, but for the tensors' shapes."""

    causal: bool
    window: int | None
    sink: int | None
    see: visibility.Visibility | None
    softcap: float | None
    score: Score | None
    scale: float | None
    layout: str
    return_lse: bool
    names: tuple[str, ...]
    """Of the tensors beside q, k and v."""


_pinned: list[Call] = []


@dataclass
class Call:
    """A kernel, its plan, and how tensors that look like those it was made for are handed to them."""

    arrangement: Arrangement
    kernel: Any
    plan: Any
    """None where there is nothing to attend."""
    stream: int
    nbytes: tuple[int, ...]
    places: tuple[int, ...]
    """Of each binding of the kernel, where its address is in (q, k, v, the rest, o, lse)."""
    strides: tuple | None
    """Of each binding, in bytes; None where it lies densely, and where all do."""
    dtype: str
    device: str
    return_lse: bool
    gradient: bool
    names: tuple[str, ...]
    """Of what is looked at: q, k, v and the rest."""
    lock: Any = field(default_factory=threading.Lock)
    alive: bool = True
    """Until another call takes the plan."""
    pinned: bool = False
    """Was captured in a graph."""
    used: int = 0

    def run(self, q: Any, k: Any, v: Any, views: list, out: Any, keep: list) -> Any:
        made = self.arrangement
        if self.gradient:
            _refuse_gradients(views)
        nbytes, strides = self.nbytes, self.strides
        addresses = [address for address, _ in views]
        if made.copies_q:
            q = contiguous(q, made.swapped)
            addresses[0] = view_of("q", q, self.stream, keep)[0]
        if out is None:
            result = empty(q, made.shape, self.dtype)
            out = swap_axes(result) if made.swapped else result
            addresses.append(view_of("out", result, self.stream, keep)[0])
        else:
            address, lies = self._check_out(view_of("out", out, self.stream, keep), views)
            addresses.append(address)
            if lies:
                nbytes, strides = self._with_out(lies)
        if self.return_lse:
            lse = empty(q, made.shape[:-1], "f32")
            addresses.append(view_of("lse", lse, self.stream, keep)[0])
            out = (out, swap_axes(lse) if made.swapped else lse)
        if self.plan is not None:
            addresses = [addresses[place] for place in self.places]
            try:
                self._launch(addresses, nbytes, strides)
            except PlanError:
                if self.pinned:
                    raise
                self._pin()
                self._launch(addresses, nbytes, strides)
        return out

    def _launch(self, addresses: list, nbytes: tuple, strides: tuple | None) -> None:
        try:
            self.kernel.launch(addresses, nbytes, self.plan, self.stream, strides)
        except TensorError as error:  # which names what the kernel names
            raise TensorError(str(error).removeprefix("kv.")) from None

    def _pin(self) -> None:
        """The stream is being captured: no other call may get the plan, which a graph will read for as long as it
        lives, and nobody says how long that is."""
        self.plan.fix()
        self.pinned = True
        _pinned.append(self)

    def _with_out(self, lies: tuple[int, ...]) -> tuple[tuple, tuple]:
        """Bytes and strides of the bindings where the output has these strides."""
        place, made = self.kernel.slots.index("o"), self.arrangement
        nbytes, strides = list(self.nbytes), list(self.strides or (None,) * len(self.nbytes))
        nbytes[place] = span((math.prod(made.shape[:-2]), *made.shape[-2:]), lies, 2)
        strides[place] = tuple(2 * stride for stride in lies)
        return tuple(nbytes), tuple(strides)

    def _check_out(self, given: tuple, views: list) -> tuple[int, tuple[int, ...] | None]:
        """Its address, and strides of its rows, heads and features in elements where it does not lie densely."""
        found, made = as_bfloat16(given[1]), self.arrangement
        shape = swapped(made.shape) if made.swapped else made.shape
        if found.dtype != self.dtype or found.shape != shape:
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
        nbytes = span(rows, lies, 2) if lies else 2 * math.prod(made.shape)
        for name, (address, signature) in zip(self.names, views, strict=True):
            read = as_bfloat16(signature)
            itemsize = DTYPES[read.dtype][1] if read.dtype else 0  # what has none, nothing reads
            if overlaps(given[0], nbytes, address, read.shape, read.strides, itemsize):
                raise TensorError(
                    f"out: overlaps {name}, which other blocks still read when the first results are written"
                )
        return given[0], lies


def as_bfloat16(signature: tuple) -> Strided:
    """In attn's words; NumPy's uint16 is bfloat16 by its bits."""
    found = strided(signature)
    return found._replace(dtype="bf16") if signature[3] is None and found.dtype == "u16" else found


def _refuse_gradients(views: list) -> None:
    if sys.modules["torch"].is_grad_enabled():
        i = next(i for i, (_, signature) in enumerate(views) if signature[5])
        raise TensorError(
            f"{'qkv'[i] if i < 3 else 'tensors'}: requires a gradient, which only attn.attend itself passes on; call that, "
            "call under torch.no_grad(), or detach it"
        )


def describe_call(
    options: Options, views: list, tables: tuple, forest: Forest | None
) -> tuple[Arrangement, Spec]:
    """What is attended, and where each tensor goes; all arguments are checked."""
    if options.layout not in ("bshd", "bhsd"):
        nearest = closest(options.layout, ("bshd", "bhsd"))
        raise expected(TensorError, "layout", "'bshd' or 'bhsd'", options.layout, nearest=nearest)
    q, k, v = (as_bfloat16(signature) for _, signature in views[:3])
    dtype = storage_name("q", q.dtype, TensorError)
    see = _visibility(options)
    score, tensors = _score(options), read_tensors(options, views)
    made = arrange(
        q,
        k,
        v,
        options.layout,
        tables,
        forest,
        of_heads=_head_reader(options, score),
        of_positions=_position_reader(see, score),
    )
    spec = Spec(
        q_heads=made.q_heads,
        kv_heads=made.kv_heads,
        head_dim=made.operands["q"][1][-1],
        value_dim=made.shape[-1],
        dtype=dtype,
        kv=[made.store],
        see=see,
        score=score,
        tensors=tensors if options.score is not None else None,
        sink_logits="sink_logits" in options.names,
        scale=options.scale,
        return_lse=options.return_lse,
    )
    return made, spec


def make_call(
    options: Options,
    views: list,
    tables: tuple,
    forest: Forest | None,
    stream: int,
    spare_plan: Callable,
) -> Call:
    """Checks everything, compiles, plans. `spare_plan` gives the plan of a call that is not needed any more, or None."""
    made, spec = describe_call(options, views, tables, forest)
    q = as_bfloat16(views[0][1])
    rows = made.operands["q"][1][0]
    extras = {name: signature for name, (_, signature) in zip(options.names, views[3:], strict=True)}
    kernel = compile(spec, device=q.device)
    bindings = tensors_of(kernel.manifest)
    nbytes = {name: check(bindings[name], extras[name], {}, q.device) for name in extras if name in bindings}
    for name in ("q", "kv.k", "kv.v"):
        shape, lies = made.operands[name][1], made.strides.get(name)
        nbytes[name] = span(shape, lies, 2) if lies else 2 * math.prod(shape)
    nbytes["o"], nbytes["lse"] = 2 * math.prod(made.shape), 4 * math.prod(made.shape[:-1])
    batch = made.operands | {
        name: ("f32", strided(extras[name]).shape) for name in extras if name in bindings
    }
    plan = None
    if rows:
        plan = spare_plan(kernel, stream)
        if plan is None:
            plan = kernel.plan(batch, stream=stream)
        else:
            plan.update(batch, stream=stream)
    lie = {name: tuple(2 * stride for stride in found) for name, found in made.strides.items()}
    places = {name: i for i, name in enumerate(("q", "kv.k", "kv.v", *options.names, "o", "lse"))}
    return Call(
        arrangement=made,
        kernel=kernel,
        plan=plan,
        stream=stream,
        nbytes=tuple(nbytes[name] for name in kernel.slots),
        places=tuple(places[name] for name in kernel.slots),
        strides=tuple(lie.get(name) for name in kernel.slots) if lie else None,
        dtype=q.dtype,
        device=q.device,
        return_lse=options.return_lse,
        gradient=any(signature[5] for _, signature in views),
        names=(
            *"qkv",
            *(name if name == "sink_logits" else f"tensors[{name!r}]" for name in options.names),
        ),
    )


# --- The description -----------------------------------------------------------------------------------------


def _visibility(options: Options) -> visibility.Visibility:
    causal, window, sink, see = options[:4]
    if not isinstance(causal, bool):
        raise expected(SpecError, "causal", "True or False", causal)
    if see is not None:
        if causal or window is not None or sink is not None:
            raise SpecError("see: expected instead of causal, window and sink, got both")
        return visibility.check_visibility("see", see)
    if not causal:
        for name, size in (("window", window), ("sink", sink)):
            if size is not None:
                raise SpecError(
                    f"{name}: expected causal=True beside it, got {size!r} without: windows end at the row's own position"
                )
        return visibility.all_tokens()
    if window is None and sink is None:
        return visibility.causal()
    if sink is None:
        return visibility.window(window)
    seen_first = visibility.sink(sink)
    return visibility.causal() & (seen_first if window is None else seen_first | visibility.recent(window))


def _score(options: Options) -> Score | None:
    if options.softcap is not None:
        if options.score is not None:
            raise SpecError(
                "softcap: expected None beside score, which can hold it: attn.math.softcap(s, cap)"
            )
        return trace(_softcap(options.softcap))
    read = [name for name in options.names if name != "sink_logits"]
    if options.score is None and read:
        raise SpecError(f"tensors: expected a score function that reads {', '.join(read)}, got score=None")
    return options.score


def read_tensors(options: Options, views: list) -> tuple[tuple[str, tuple], ...]:
    """Names and shapes of what a score function may read: an extent of as many as there are heads is compiled, all
    others are sizes of the run."""
    q = views[0][1][1]
    for name, (_, signature) in zip(options.names, views[3:], strict=True):
        found = strided(signature)
        if name != "sink_logits" and found.dtype != "f32":
            raise TensorError(
                f"tensors[{name!r}]: expected float32, got {found.text()}{no_floats(found.dtype)}"
            )
    by_token = (
        isinstance(options.layout, str) and options.layout == "bshd"
    )  # what else it may be is refused later
    heads = q[2 if len(q) == 4 and by_token else 1] if len(q) > 1 else 1
    shapes = {
        name: tuple(n if n == heads else f"{name}_{axis}" for axis, n in enumerate(signature[1]))
        for name, (_, signature) in zip(options.names, views[3:], strict=True)
        if name != "sink_logits"
    }
    return tensor_shapes(shapes, ("kv",))


@functools.lru_cache(maxsize=256)
def _softcap(cap: object) -> Callable:
    if isinstance(cap, bool) or not isinstance(cap, (int, float)) or not 0 < cap < math.inf:
        raise expected(SpecError, "softcap", "a positive number, or None", cap)
    from ..describe.functions import softcap

    return lambda s, h, qi, ki: softcap(s, cap)


def _head_reader(options: Options, score: Score | None) -> str:
    if "sink_logits" in options.names:
        return "a logit per head"
    return "a score function that depends on the head" if score and score.uses("h") else ""


def _position_reader(see: visibility.Visibility, score: Score | None) -> str:
    if score and (score.uses("qi") or score.uses("ki")):
        return "a score function that depends on positions"
    return "a sink" if "sink(" in see.mlir() else ""
