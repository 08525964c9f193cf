# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend as an operator of PyTorch, torch.ops.attn.attend, for compiled code.

An operator takes tensors, numbers and strings. A visibility is passed as a string. A score function is kept here when
code is traced, and the operator gets its name (`keep`, `kept`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..describe.forest import Forest
from ..describe.visibility import check_visibility, read_visibility
from ..errors import TensorError, expected
from .direct import attend_now
from .reference import check_cpu
from .torch_gradients import Differentiable
from .torch_rules import PLANS_ANEW, cast_under_autocast, refuse_forward_mode, refuse_twice, refuse_vmap


@torch.library.custom_op("attn::attend", mutates_args=(), tags=PLANS_ANEW)
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Sequence[Tensor],
    causal: bool = False,
    window: int | None = None,
    sink: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    sink_logits: Tensor | None = None,
    kv_lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    layout: str = "bshd",
    forest: Tensor | None = None,
    reference: bool = False,
    allow_empty_rows: bool = False,
    see: str | None = None,
    score: str | None = None,
    names: str = "",
    ordered: bool | None = None,
    numerics: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `attn.attend` with return_lse, for the arguments that an operator can have. Both results are contiguous
    in the order of `layout`.

    tensors     the tensors that the score function reads, or []; `names`: their names, separated by commas
    forest      the argument of Forest.from_table
    see         the `repr` of a visibility
    score       the name of a score function, from `keep`
    ordered     whether gradients are the same bits in every run; the results of this operator always are
    numerics    "row" or None, as of attn.attend
    """
    refuse_forward_mode()
    options = _options(
        causal,
        window,
        sink,
        softcap,
        scale,
        kv_lengths,
        cu_seqlens,
        cu_seqlens_k,
        forest,
        layout,
        allow_empty_rows,
        see,
        score,
        numerics,
    )
    read = _read(names, tensors)
    if reference:
        check_cpu(q=q, k=k, v=v, sink_logits=sink_logits, **read)
        call, given = _differentiable(q, k, v, sink_logits, read, options)
        out, lse = call.results(given)
    else:
        out, lse = attend_now(
            q, k, v, **options, tensors=read or None, sink_logits=sink_logits, return_lse=True, out=None
        )
    return out.contiguous(), lse.contiguous()


@_attend.register_fake
def _(q, k, v, tensors, *options, **named):
    precise = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=precise)


@torch.library.custom_op("attn::attend_backward", mutates_args=())
def _attend_backward(
    d_out: Tensor | None,
    d_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Sequence[Tensor],
    causal: bool,
    window: int | None,
    sink: int | None,
    softcap: float | None,
    scale: float | None,
    sink_logits: Tensor | None,
    kv_lengths: Tensor | None,
    cu_seqlens: Tensor | None,
    cu_seqlens_k: Tensor | None,
    layout: str,
    forest: Tensor | None,
    reference: bool,
    allow_empty_rows: bool,
    see: str | None,
    score: str | None,
    names: str,
    ordered: bool | None,
    numerics: str | None,
    needed: Sequence[bool],
) -> list[Tensor]:
    """Compute the gradients of q, k, v, of sink_logits if given, and of `tensors`. Gradients that are not `needed`, in
    the same order, are 0."""
    options = _options(
        causal,
        window,
        sink,
        softcap,
        scale,
        kv_lengths,
        cu_seqlens,
        cu_seqlens_k,
        forest,
        layout,
        allow_empty_rows,
        see,
        score,
        numerics,
    )
    call, given = _differentiable(q, k, v, sink_logits, _read(names, tensors), options | {"ordered": ordered})
    call.check_place(given, needed)
    found = call.gradients(given, (out, lse), (d_out, d_lse), needed=tuple(needed), reference=reference)
    return [gradient.contiguous() for gradient in found]


@_attend_backward.register_fake
def _(d_out, d_lse, out, lse, q, k, v, tensors, causal, window, sink, softcap, scale, sink_logits, *others):
    given = (q, k, v, *([] if sink_logits is None else [sink_logits]), *tensors)
    return [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in given]


def _options(
    causal,
    window,
    sink,
    softcap,
    scale,
    kv_lengths,
    cu_seqlens,
    cu_seqlens_k,
    forest,
    layout,
    allow_empty_rows,
    see,
    score,
    numerics,
) -> dict[str, object]:
    """Return the arguments of attend that are not differentiable tensors."""
    return {
        "causal": causal,
        "window": window,
        "sink": sink,
        "see": None if see is None else read_visibility(see),
        "softcap": softcap,
        "score": None if score is None else kept(score),
        "scale": scale,
        "kv_lengths": kv_lengths,
        "cu_seqlens": cu_seqlens,
        "cu_seqlens_k": cu_seqlens_k,
        "forest": None if forest is None else Forest.from_table(forest),
        "layout": layout,
        "allow_empty_rows": allow_empty_rows,
        "numerics": numerics,
        "significance": None,
        "significance_rows": None,
    }


def _read(names: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(names.split(",") if names else (), tensors, strict=True))


def _differentiable(q, k, v, sink_logits, read, options) -> tuple[Differentiable, tuple[Tensor, ...]]:
    extras = ({} if sink_logits is None else {"sink_logits": sink_logits}) | read
    given = (q, k, v, *extras.values())
    return Differentiable.of(q, k, v, extras, options), given


_NAMES = [argument.name for argument in torch.ops.attn.attend.default._schema.arguments]
_DIFFERENTIABLE = ("q", "k", "v", "sink_logits", "tensors")


def _save(ctx, inputs, output) -> None:
    named = dict(zip(_NAMES, inputs, strict=True))
    read = named.pop("tensors")
    ctx.tensors = [name for name, value in named.items() if isinstance(value, Tensor)]
    ctx.others = {name: value for name, value in named.items() if name not in ctx.tensors}
    ctx.read = len(read)
    ctx.save_for_backward(*(named[name] for name in ctx.tensors), *read, *output)


def _backward(ctx, d_out: Tensor | None, d_lse: Tensor | None) -> tuple:
    *given, out, lse = ctx.saved_tensors
    split = len(given) - ctx.read
    named = ctx.others | dict(zip(ctx.tensors, given[:split], strict=True)) | {"tensors": given[split:]}
    # The dispatcher leaves out trailing arguments with default values, here and in the gradients that it
    # wants.
    asked = dict(zip(_NAMES, ctx.needs_input_grad, strict=False))
    single = [name for name in _DIFFERENTIABLE[:-1] if isinstance(named[name], Tensor)]
    needed = [*(asked[name] for name in single), *asked["tensors"]]
    found = torch.ops.attn.attend_backward(d_out, d_lse, out, lse, **named, needed=needed)
    gradients: dict[str, object] = dict(zip(single, found, strict=False))
    gradients["tensors"] = found[len(single) :]
    return tuple(gradients.get(name) for name in asked)


torch.library.register_autograd(_attend, _backward, setup_context=_save)
refuse_twice(_attend_backward)
refuse_vmap(_attend)


# --- Score functions ------------------------------------------------------------------------------------------

_kept: dict[str, object] = {}


@torch._dynamo.assume_constant_result
def keep(score: object) -> str:
    """Keep a score function, and return its name for compiled code. Values that it reads from outside are read again in
    every run, as without compiling."""
    name = f"{getattr(score, '__qualname__', type(score).__name__)} {id(score)}"
    _kept[name] = score  # Keeping it alive keeps its id from becoming another object's.
    return name


def kept(name: str) -> object:
    """Return the score function that `keep` was given. TensorError if that was in another process."""
    if name not in _kept:
        raise TensorError(
            f"score: {name!r} was traced in another process, which cannot pass functions on; compile the code in this process"
        )
    return _kept[name]


_OPERATOR_TAKES = set(_NAMES) - {"names"}


def attend(q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False, **options: object) -> object:
    """Compute `attn.attend` in compiled code and on fake tensors. TensorError for options that need tensors with
    memory: out, significance."""
    named = {name: value for name, value in options.items() if value is not None}
    for name in named:
        if name not in _OPERATOR_TAKES:
            raise TensorError(
                f"{name}: not an argument of the operator that compiled code calls, which has {', '.join(sorted(_OPERATOR_TAKES))}; "
                "call attn.attend outside, or plan a kernel and call its run"
            )
    for name in ("kv_lengths", "cu_seqlens", "cu_seqlens_k"):
        if name in named and not isinstance(named[name], Tensor):
            named[name] = torch.tensor(named[name], dtype=torch.int32)
    if "forest" in named:
        named["forest"] = torch.from_numpy(named["forest"].table)
    if "see" in named:
        named["see"] = check_visibility("see", named["see"]).__repr__()
    if "score" in named:
        named["score"] = keep(named["score"])
    read = named.pop("tensors", {})
    if not isinstance(read, dict):
        raise expected(TensorError, "tensors", "a dict of names and tensors", type(read).__name__)
    given = [each if isinstance(each, Tensor) else torch.as_tensor(each) for each in read.values()]
    q, k, v = cast_under_autocast(q, k, v)
    out, lse = torch.ops.attn.attend(q, k, v, given, **named, names=",".join(read))
    return (out, lse) if return_lse else out
