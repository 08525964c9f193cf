"""attend: attention on tensors as they are, without a description, a kernel or a plan to keep.

The description follows from the arguments, the kernel from the description, the plan from the shapes (calls.py). All of
it is found again by the signatures of the tensors, so that a call like one before costs a look up, the allocation of
the output and the launch.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import devices
from .calls import Call, Options, make_call, read_tensors
from .errors import SpecError, expected
from .score import trace
from .slots import is_traced, look
from .tables import int32_array
from .visibility import Visibility

_MOST_CALLS = 64
_MOST_PLANS = 8  # of one kernel on one stream; then the one that was used longest ago is planned anew
_calls: dict[tuple, Call] = {}
_clock = itertools.count()
_guard = threading.Lock()


def attend(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    sink: int | None = None,
    see: Visibility | None = None,
    softcap: float | None = None,
    score: Callable | None = None,
    tensors: Mapping[str, Any] | None = None,
    sink_logits: Any = None,
    scale: float | None = None,
    kv_lengths: Sequence[int] | Any = None,
    cu_seqlens: Sequence[int] | Any = None,
    cu_seqlens_k: Sequence[int] | Any = None,
    layout: str = "bshd",
    return_lse: bool = False,
    out: Any = None,
    **others: Any,
) -> Any:
    """Attention of dense tensors, or of packed sequences; on a GPU or, on CPU tensors, on the host device.

    q, k, v       `[batch, seq, heads, dim]`; layout="bhsd": `[batch, heads, seq, dim]`. float16 or bfloat16 (NumPy: its
                  bits as uint16, or ml_dtypes'), of PyTorch, NumPy or with __dlpack__. q may have more heads than k
                  and v, a multiple of theirs; v may have another dim
    causal        rows are the last positions of their sequence, and see what is up to their own
    window        with causal: only the last `window` positions, the row's own among them
    sink          with causal: the first `sink` positions, too
    see           any other visibility, in place of the three
    softcap       scores become softcap * tanh(score / softcap)
    score         any other score function, see attn.Spec; `tensors`: what it reads, float32, by name
    sink_logits   float32 [q heads]: a logit that joins each row's softmax and carries no value
    scale         of the dot products; by default 1/sqrt(dim)
    kv_lengths    valid tokens of each sequence, int32 [batch], where k and v have room for more
    cu_seqlens    packed sequences: tensors are `[tokens, heads, dim]`, and sequence i has the rows from cu_seqlens[i]
                  to cu_seqlens[i + 1], int32 [batch + 1]; of k and v these are cu_seqlens_k, where given. They are read
                  on the CPU: those on a GPU are waited for
    return_lse    gives (out, lse): the logarithm of each row's softmax denominator, float32 `[batch, seq, heads]`, in
                  the order of `layout`; packed `[tokens, heads]`
    out           where the output goes: memory in which no other argument lies

    Nothing is copied where each tensor lies in memory in one of the two layouts, whichever `layout` names its
    dimensions: k and v in one, and possibly as the front part of a longer cache. A q that lies in the other one than k
    and v is copied. A score function that depends on the head, and sink logits, need `[batch, seq, heads, dim]`. What
    cannot be read so is refused, not copied. The output lies as k and v do.

    Neither waits for a GPU nor allocates more than the output once a call like it was made. Errors: TensorError,
    SpecError, before anything is launched; DeviceError.
    """
    if others:
        from .hints import refuse_options

        refuse_options(others, attend.__kwdefaults__)
    if is_traced(q):
        from . import torch_ops

        return torch_ops.attend(
            q,
            k,
            v,
            causal=causal,
            window=window,
            sink=sink,
            see=see,
            softcap=softcap,
            score=score,
            tensors=tensors,
            sink_logits=sink_logits,
            scale=scale,
            kv_lengths=kv_lengths,
            cu_seqlens=cu_seqlens,
            cu_seqlens_k=cu_seqlens_k,
            layout=layout,
            return_lse=return_lse,
            out=out,
        )
    keep: list = []
    stream = _stream(q)
    looks = [look("q", q, stream, keep), look("k", k, stream, keep), look("v", v, stream, keep)]
    names: tuple[str, ...] = ()
    if sink_logits is not None:
        names += ("sink_logits",)
        looks.append(look("sink_logits", sink_logits, stream, keep))
    if tensors is not None:
        if not isinstance(tensors, Mapping):
            raise expected(SpecError, "tensors", "a dict of names and tensors", tensors)
        names += tuple(tensors)
        looks += [look(f"tensors[{name!r}]", tensor, stream, keep) for name, tensor in tensors.items()]
    options = Options(causal, window, sink, see, softcap, None, scale, layout, return_lse, names)
    if score is not None:  # by what it does: a lambda is a new function in every call
        options = options._replace(score=trace(score, read_tensors(options, looks)))
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
        tuple([signature for _, signature in looks]),
        tuple([table if table is None else (table.shape, table.tobytes()) for table in tables]),
        stream,
        devices.generation,
    )
    while True:
        try:
            call = _calls.get(key)
        except TypeError as error:
            raise SpecError(f"attend: an argument is of a type that has no hash: {error}") from None
        if call is None:
            call = _add(key, make_call(options, looks, tables, stream, _plan_of_another))
        with call.lock:
            if call.alive:
                call.used = next(_clock)
                return call.run(q, k, v, looks, out, keep)


def _add(key: tuple, call: Call) -> Call:
    """The call, or the one that another thread has added meanwhile."""
    with _guard:
        call.used = next(_clock)
        call = _calls.setdefault(key, call)
        if len(_calls) > _MOST_CALLS:
            _calls.pop(min(_calls, key=lambda other: _calls[other].used))
    return call


def _plan_of_another(kernel: Any, stream: int) -> Any:
    """The plan of the call that was used longest ago, where a kernel has many; that call is forgotten."""
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
    """PyTorch's current stream on the GPU of q; 0 elsewhere."""
    if not getattr(q, "is_cuda", False):
        return 0
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(q.device).cuda_stream if torch is not None else 0
