# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attend on tensors that have memory.

The description follows from the arguments, the kernel from the description, the plan from the shapes (calls.py). All
three are kept by the signatures of the tensors. A later call with PyTorch's tensors of the same form skips even that:
the extension launches it (launches.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..describe.forest import Forest, check_forest
from ..describe.score import trace
from ..describe.visibility import Visibility
from ..errors import SpecError, expected
from ..forks import make_guard
from ..memory import devices
from ..memory.readable import copy_misaligned, copy_unreadable
from ..memory.tables import int32_array
from ..memory.views import view_of
from .calls import Call, make_call
from .described_calls import Options, read_tensors
from .launches import Asked, clock

_MOST_CALLS = 64
_MOST_PLANS = 8  # For one kernel on one stream; then the least recently used one is planned anew.
_calls: dict[tuple, Call] = {}
_guard = make_guard()


def attend_now(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    window: int | None,
    sink: int | None,
    see: Visibility | None,
    softcap: float | None,
    score: Callable | None,
    tensors: Mapping[str, Any] | None,
    sink_logits: Any,
    scale: float | None,
    kv_lengths: Sequence[int] | Any,
    cu_seqlens: Sequence[int] | Any,
    cu_seqlens_k: Sequence[int] | Any,
    layout: str,
    return_lse: bool,
    out: Any,
    forest: Forest | None = None,
    allow_empty_rows: bool = False,
    numerics: str | None = None,
    significance: str | None = None,
    significance_rows: int | None = None,
    asked: Asked | None = None,
    gate: Any = None,
    output_scale: Any = None,
    output_scales: str | None = None,
) -> Any:
    """Compute `attn.attend` on tensors with memory; its arguments in its order. `asked`: receives a launch for later
    calls of this form."""
    keep: list = []
    stream = _stream(q)
    views = [view_of("q", q, stream, keep), view_of("k", k, stream, keep), view_of("v", v, stream, keep)]
    if (copies := copy_unreadable((q, k, v), views, layout)) is not None:
        asked = None  # A prepared launch would read the caller's tensors.
        q, k, v = copies
        views = [view_of(name, each, stream, keep) for name, each in zip("qkv", copies, strict=True)]
    names: tuple[str, ...] = ()
    if sink_logits is not None:
        names += ("sink_logits",)
        views.append(view_of("sink_logits", sink_logits, stream, keep))
    if gate is not None:
        names += ("gate",)
        view = view_of("gate", gate, stream, keep)
        if (copied := copy_misaligned(gate, view[0])) is not None:
            asked, gate, view = None, copied, view_of("gate", copied, stream, keep)
        views.append(view)
    if output_scale is not None:
        names += ("output_scale",)
        views.append(view_of("output_scale", output_scale, stream, keep))
    if tensors is not None:
        if not isinstance(tensors, Mapping):
            raise expected(SpecError, "tensors", "a dict of names and tensors", tensors)
        for taken, given in (("gate", gate), ("output_scale", output_scale)):
            if given is not None and taken in tensors:
                raise SpecError(f"tensors: expected another name than {taken!r} beside {taken}=...")
        names += tuple(tensors)
        views += [view_of(f"tensors[{name!r}]", tensor, stream, keep) for name, tensor in tensors.items()]
    described = causal, window, sink, see, softcap, None, scale, layout, return_lse, names
    options = Options(
        *described,
        significance,
        significance_rows,
        allow_empty_rows,
        numerics,
        gate is not None,
        output_scale is not None,
        output_scales is not None,
    )
    # Traced, to compare what the function does: a lambda is a new function in every call.
    if score is not None:
        options = options._replace(score=trace(score, read_tensors(options, views)))
    tables = tuple(
        None if table is None else int32_array(name, table)
        for name, table in (
            ("kv_lengths", kv_lengths),
            ("cu_seqlens", cu_seqlens),
            ("cu_seqlens_k", cu_seqlens_k),
        )
    )
    key = (
        options,
        tuple([signature for _, signature in views]),
        tuple([table if table is None else (table.shape, table.tobytes()) for table in tables]),
        None if forest is None else check_forest("forest", forest),
        stream,
        devices.generation,
    )
    while True:
        try:
            call = _calls.get(key)
        except TypeError:
            raise _wrong_kind(options) from None
        if call is None:
            call = _add(key, make_call(options, views, tables, forest, stream, _plan_of_another))
        with call.lock:
            if call.alive:
                call.used = next(clock)
                results = call.run(q, k, v, views, out, keep, gate)
                break
    if asked is not None and out is None:
        asked.add(lambda: call.launch(asked.tensors, results))
    return results


def _add(key: tuple, call: Call) -> Call:
    """Return the call, or an equal one that another thread has added meanwhile."""
    with _guard:
        call.used = next(clock)
        call = _calls.setdefault(key, call)
        if len(_calls) > _MOST_CALLS:
            _calls.pop(min(_calls, key=lambda other: _calls[other].used))
    return call


def _plan_of_another(kernel: Any, stream: int) -> Any:
    """Return the plan of the least recently used call if a kernel has many, and forget that call; else None."""
    with _guard:
        alike = [
            key
            for key, call in _calls.items()
            if call.kernel is kernel and call.stream == stream and not call.pinned
        ]
        if len(alike) < _MOST_PLANS:
            return None
        call = _calls.pop(min(alike, key=lambda key: _calls[key].used))
    with call.lock:
        call.alive = False
        return None if call.pinned else call.plan


def _stream(q: Any) -> int:
    """Return PyTorch's current stream on the GPU of q; 0 elsewhere."""
    if not getattr(q, "is_cuda", False):
        return 0
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(q.device).cuda_stream if torch is not None else 0


def _wrong_kind(options: Options) -> SpecError:
    """Return the error for an argument that cannot decide a description: a tensor, a list."""
    legal = {
        "causal": "True or False",
        "window": "a number of tokens",
        "sink": "a number of tokens",
        "see": "a visibility, as attn.causal() & attn.recent(256)",
        "softcap": "a number",
        "scale": "a number",
        "layout": "'bshd' or 'bhsd'",
        "return_lse": "True or False",
        "significance": "max, mean or sum",
        "significance_rows": "a number of rows",
    }
    for name, value in options._asdict().items():
        try:
            hash(value)
        except TypeError:
            return expected(SpecError, name, legal.get(name, "another kind of value"), value)  # type: ignore[return-value]
    return SpecError("attend: expected arguments of other types")
