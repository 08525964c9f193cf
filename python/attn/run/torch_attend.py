# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend as an operator of PyTorch, torch.ops.attn.attend: what it is in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TensorError
from .direct import attend_now
from .torch_rules import PLANS_ANEW, refuse_gradients, refuse_later


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
) -> tuple[Tensor, Tensor]:
    """`attn.attend` with return_lse, for those of its arguments that an operator can have. Both results are contiguous
    in the order of `layout`."""
    out, lse = attend_now(
        q,
        k,
        v,
        causal=causal,
        window=window,
        sink=sink,
        see=None,
        softcap=softcap,
        score=None,
        tensors=None,
        scale=scale,
        sink_logits=sink_logits,
        kv_lengths=kv_lengths,
        cu_seqlens=cu_seqlens,
        cu_seqlens_k=cu_seqlens_k,
        layout=layout,
        return_lse=True,
        out=None,
    )
    return out.contiguous(), lse.contiguous()


@_attend.register_fake
def _(q, k, v, *options, **named):
    return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=torch.float32)


refuse_later(_attend)

_OPERATOR_TAKES = {parameter.name for parameter in torch.ops.attn.attend.default._schema.arguments}


def attend(q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False, **options: object) -> object:
    """`attn.attend` as compiled code and fake tensors see it. TensorError for options that only a call on tensors with
    memory can have: see, score, tensors, out."""
    refuse_gradients(q=q, k=k, v=v)
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
    out, lse = torch.ops.attn.attend(q, k, v, **named)
    return (out, lse) if return_lse else out
