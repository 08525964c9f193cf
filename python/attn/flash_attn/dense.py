# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's functions on sequences of one length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _attn
from ..errors import TensorError, expected, given
from ..memory.views import is_autocast, is_traced
from ..run.attention import attend_anew
from ..run.launches import Asked
from ..run.torch_rules import cast_under_autocast
from .options import Options, check_ranks, padded_heads, read_options, read_slopes

_launches = _attn.Launches()


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Compute attention as flash_attn.flash_attn_func does.

    q                  [batch, seq, heads, dim], float16 or bfloat16
    k, v               [batch, seq_k, heads_k, dim]; heads is a multiple of heads_k
    dropout_p          0.0; any other is refused
    softmax_scale      factor of q k^T; None: 1/sqrt(dim)
    causal             row i sees keys up to i + seq_k - seq: masks end at the bottom right
    window_size        (left, right): row i sees keys from i + seq_k - seq - left to i + seq_k - seq + right; -1: no limit
    softcap            scores become softcap * tanh(score / softcap); 0.0: they stay; at most 16384
    alibi_slopes       float32 [heads] or [batch, heads]: -slope * |i + seq_k - seq - j| is added to scores. Slopes that
                       differ from sequence to sequence take a launch for each sequence
    deterministic      whether gradients are the same bits in every run; results always are
    return_attn_probs  returns (out, lse, probs): lse float32 [batch, heads, seq], the natural logarithm of the softmax's
                       denominator, -inf where a row sees nothing; probs is empty

    Returns out [batch, seq, heads, dim], 0 where a row sees nothing. Gradients pass to q, k and v, from out and lse.
    Tensors that kernels cannot read in place are copied, and cast under torch.autocast (attn.attend). Raises SpecError and
    TensorError before anything is launched.
    """
    traced = is_traced(q)
    asked = None
    if not traced:
        if is_autocast():
            q, k, v = cast_under_autocast(q, k, v)
        tensors = q, k, v, alibi_slopes
        options = dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs
        found = _launches.run(tensors, options)
        if found is not None:
            return _with_probs(*found) if return_attn_probs else found
        asked = Asked(_launches, tensors, options)
    options = read_options(dropout_p, softmax_scale, causal, window_size, softcap)
    check_ranks(4, "[batch, seq, heads, dim]", q=q, k=k, v=v)
    slopes = read_slopes(alibi_slopes, q.shape[2], q.shape[0], q)
    if slopes is None or len(slopes) == 1:
        if slopes is not None and (alibi_slopes.ndim == 2 or not alibi_slopes.is_contiguous()):
            asked = None  # A prepared launch would read the caller's tensor.
        found = attend_options(
            q,
            k,
            v,
            options,
            slopes and slopes[0],
            deterministic,
            return_attn_probs,
            asked=asked,
            traced=traced,
        )
    else:
        parts = [
            attend_options(*each, options, slope, deterministic, return_attn_probs, traced=traced)
            for *each, slope in zip(q.split(1), k.split(1), v.split(1), slopes, strict=True)
        ]
        found = tuple(map(torch.cat, zip(*parts, strict=True))) if return_attn_probs else torch.cat(parts)
    return _with_probs(*found) if return_attn_probs else found


def flash_attn_qkvpacked_func(
    qkv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Compute `flash_attn_func` of qkv [batch, seq, 3, heads, dim], which is read in place."""
    check_packed("qkv", qkv, 5, 2, 3)
    options = dropout_p, softmax_scale, causal, window_size, softcap
    return flash_attn_func(*qkv.unbind(2), *options, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_kvpacked_func(
    q,
    kv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Compute `flash_attn_func` of q [batch, seq, heads, dim] and kv [batch, seq_k, 2, heads_k, dim], which is read in
    place."""
    check_packed("kv", kv, 5, 2, 2)
    options = dropout_p, softmax_scale, causal, window_size, softcap
    return flash_attn_func(q, *kv.unbind(2), *options, alibi_slopes, deterministic, return_attn_probs)


def attend_options(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    options: Options,
    slopes: Tensor | None,
    deterministic: bool,
    return_lse: bool,
    *,
    asked: Asked | None = None,
    traced: bool = False,
    **tables: Any,
) -> Any:
    """Compute attention with these options: out, or (out, lse), as `attn.attend` returns them."""
    dim, value_dim = q.shape[-1], v.shape[-1]
    scale = options.scale
    if dim % 8 or value_dim % 8:
        scale = dim**-0.5 if scale is None else scale
        (q, k, v), asked = padded_heads(q, k, v), None
    found = attend_anew(
        q,
        k,
        v,
        see=options.see,
        softcap=options.softcap if slopes is None else None,
        score=None if slopes is None else options.score(q.shape[-2], traced),
        tensors=None if slopes is None else {"slopes": slopes},
        scale=scale,
        return_lse=return_lse,
        ordered=True if deterministic else None,
        allow_empty_rows=True,
        asked=asked,
        traced=traced,
        **tables,
    )
    if value_dim % 8:
        return (found[0][..., :value_dim], found[1]) if return_lse else found[..., :value_dim]
    return found


def check_packed(name: str, tensor: Any, rank: int, axis: int, count: int) -> None:
    """Raise a TensorError for a tensor without `count` parts along its axis."""
    if not isinstance(tensor, Tensor) or tensor.ndim != rank or tensor.shape[axis] != count:
        dims = ("batch, seq, " if rank == 5 else "tokens, ") + f"{count}, heads, dim"
        raise expected(TensorError, name, f"a tensor of PyTorch, [{dims}]", given(tensor))


def _with_probs(out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return out, lse.transpose(1, 2).contiguous(), out.new_empty(0)
