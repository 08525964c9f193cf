# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend as an operator of PyTorch, torch.ops.attn.attend: what it is in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor

from ..describe.forest import Forest
from ..errors import TensorError
from .direct import attend_now
from .reference import check_cpu
from .torch_gradients import Differentiable
from .torch_rules import PLANS_ANEW


@torch.library.custom_op("attn::attend", mutates_args=(), tags=PLANS_ANEW)
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
) -> tuple[Tensor, Tensor]:
    """`attn.attend` with return_lse, for those of its arguments that an operator can have. Both results are contiguous
    in the order of `layout`. `forest`: what Forest.from_table takes."""
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
    )
    if reference:
        check_cpu(q=q, k=k, v=v, sink_logits=sink_logits)
        call, given = _differentiable(q, k, v, sink_logits, options)
        out, lse = call.results(given)
    else:
        out, lse = attend_now(
            q, k, v, **options, tensors=None, sink_logits=sink_logits, return_lse=True, out=None
        )
    return out.contiguous(), lse.contiguous()


@_attend.register_fake
def _(q, k, v, *options, **named):
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
) -> list[Tensor]:
    """The gradients of q, k, v and, where they are given, sink_logits."""
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
    )
    call, given = _differentiable(q, k, v, sink_logits, options)
    found = call.gradients(given, (out, lse), (d_out, d_lse), reference=reference)
    return [gradient.contiguous() for gradient in found]


@_attend_backward.register_fake
def _(d_out, d_lse, out, lse, q, k, v, causal, window, sink, softcap, scale, sink_logits, *tables):
    given = (q, k, v) if sink_logits is None else (q, k, v, sink_logits)
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
) -> dict[str, object]:
    """The arguments of attend that are no tensors to differentiate by."""
    return {
        "causal": causal,
        "window": window,
        "sink": sink,
        "see": None,
        "softcap": softcap,
        "score": None,
        "scale": scale,
        "kv_lengths": kv_lengths,
        "cu_seqlens": cu_seqlens,
        "cu_seqlens_k": cu_seqlens_k,
        "forest": None if forest is None else Forest.from_table(forest),
        "layout": layout,
        "allow_empty_rows": allow_empty_rows,
        "significance": None,
        "significance_rows": None,
    }


def _differentiable(q, k, v, sink_logits, options) -> tuple[Differentiable, tuple[Tensor, ...]]:
    extras = {} if sink_logits is None else {"sink_logits": sink_logits}
    given = (q, k, v, *extras.values())
    return Differentiable.of(q, k, v, extras, options), given


_NAMES = [argument.name for argument in torch.ops.attn.attend.default._schema.arguments]
_DIFFERENTIABLE = ("q", "k", "v", "sink_logits")


def _save(ctx, inputs, output) -> None:
    named = dict(zip(_NAMES, inputs, strict=True))
    ctx.tensors = [name for name, value in named.items() if isinstance(value, Tensor)]
    ctx.others = {name: value for name, value in named.items() if name not in ctx.tensors}
    ctx.save_for_backward(*(named[name] for name in ctx.tensors), *output)


def _backward(ctx, d_out: Tensor | None, d_lse: Tensor | None) -> tuple:
    *given, out, lse = ctx.saved_tensors
    named = ctx.others | dict(zip(ctx.tensors, given, strict=True))
    found = torch.ops.attn.attend_backward(d_out, d_lse, out, lse, **named)
    gradients = dict(zip(_DIFFERENTIABLE, found, strict=False))
    return tuple(gradients.get(name) for name in _NAMES)


torch.library.register_autograd(_attend, _backward, setup_context=_save)

_OPERATOR_TAKES = set(_NAMES)


def attend(q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False, **options: object) -> object:
    """`attn.attend` as compiled code and fake tensors see it. TensorError for options that only a call on tensors with
    memory can have: see, score, tensors, out."""
    named = {name: value for name, value in options.items() if value is not None}
    for name in named:
        if name not in _OPERATOR_TAKES:
            raise TensorError(
                f"{name}: not of the operator that compiled code calls, which has {', '.join(sorted(_OPERATOR_TAKES))}; "
                "call attn.attend outside, or plan a kernel and call its run"
            )
    for name in ("kv_lengths", "cu_seqlens", "cu_seqlens_k"):
        if name in named and not isinstance(named[name], Tensor):
            named[name] = torch.tensor(named[name], dtype=torch.int32)
    if "forest" in named:
        named["forest"] = torch.from_numpy(named["forest"].table)
    out, lse = torch.ops.attn.attend(q, k, v, **named)
    return (out, lse) if return_lse else out
