# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of flash-attn 3, with its signatures: its module is flash_attn_interface.

    from attn.flash_attn.version3 import flash_attn_func, flash_attn_with_kvcache

Arguments have other places than in flash-attn 2. `return_attn_probs` returns (out, lse). The hints num_splits, pack_gqa,
sm_margin and scheduler_metadata are not read: plans divide the work. Refused by name: qv, scales of 8-bit tensors
(q_descale, k_descale, v_descale), attention_chunk, seqused_q, seqused_k, cu_seqlens_k_new and rotary_seqlens.

(Source: flash-attn 3, hopper/flash_attn_interface.py, whose signatures it has.)"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import SpecError, TensorError, expected, given
from ..memory.tables import int32_array
from . import dense, kvcache, varlen
from .options import check_ranks, read_options

__all__ = [
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
]

_INSTEAD = {"attention_chunk": "attn.attend(see=attn.causal() & attn.chunk(n)) has chunks"}


def flash_attn_func(
    q,
    k,
    v,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """Compute `attn.flash_attn.flash_attn_func` with the signature of flash-attn 3. Returns out, or (out, lse)."""
    _refuse(qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _refuse(attention_chunk=attention_chunk or None)
    options = 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_attn_probs
    found = dense.flash_attn_func(q, k, v, *options)
    return found[:2] if return_attn_probs else found


def flash_attn_qkvpacked_func(
    qkv,
    softmax_scale=None,
    causal=False,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    deterministic=False,
    num_heads_q=None,
    sm_margin=0,
    return_attn_probs=False,
):
    """Compute `flash_attn_func` of qkv [batch, seq, 3, heads, dim], or of [batch, seq, heads of all three, dim] beside
    num_heads_q. It is read in place."""
    _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _refuse(attention_chunk=attention_chunk or None)
    if num_heads_q is None:
        dense.check_packed("qkv", qkv, 5, 2, 3)
        parts = qkv.unbind(2)
    else:
        check_ranks(4, "[batch, seq, heads of q, k and v, dim]", qkv=qkv)
        rest = qkv.shape[2] - num_heads_q
        if rest < 2 or rest % 2:
            legal = f"fewer than the {qkv.shape[2]} heads of qkv, by twice the heads of k"
            raise expected(TensorError, "num_heads_q", legal, num_heads_q)
        parts = qkv.split((num_heads_q, rest // 2, rest // 2), 2)
    options = 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_attn_probs
    found = dense.flash_attn_func(*parts, *options)
    return found[:2] if return_attn_probs else found


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    seqused_q=None,
    seqused_k=None,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """Compute `attn.flash_attn.flash_attn_varlen_func` with the signature of flash-attn 3. Returns out, or (out,
    lse)."""
    _refuse(seqused_q=seqused_q, seqused_k=seqused_k, qv=qv)
    _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _refuse(attention_chunk=attention_chunk or None)
    lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    options = 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_attn_probs
    found = varlen.flash_attn_varlen_func(q, k, v, *lengths, *options)
    return found[:2] if return_attn_probs else found


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    """Compute `attn.flash_attn.flash_attn_with_kvcache` with the signature of flash-attn 3.

    page_table     block_table there
    cu_seqlens_q   int32 [batch + 1]: q is packed, [tokens, heads, dim]. Needs a page table, and no new k and v; the call
                   waits for tables on a GPU

    With return_softmax_lse it returns (out, lse, empty, empty), as flash-attn 3 does with one split."""
    _refuse(qv=qv, cu_seqlens_k_new=cu_seqlens_k_new, rotary_seqlens=rotary_seqlens)
    _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _refuse(attention_chunk=attention_chunk or None)
    scores = {
        "softmax_scale": softmax_scale,
        "causal": causal,
        "window_size": window_size,
        "softcap": softcap,
    }
    if cu_seqlens_q is None:
        found = kvcache.flash_attn_with_kvcache(
            q,
            k_cache,
            v_cache,
            k,
            v,
            rotary_cos,
            rotary_sin,
            cache_seqlens,
            cache_batch_idx,
            cache_leftpad,
            page_table,
            rotary_interleaved=rotary_interleaved,
            return_softmax_lse=return_softmax_lse,
            **scores,
        )
        out, lse = found if return_softmax_lse else (found, None)
    else:
        beside = {"k": k, "rotary_cos": rotary_cos, "cache_batch_idx": cache_batch_idx}
        _refuse(**beside, cache_leftpad=cache_leftpad)
        if page_table is None or cache_seqlens is None:
            raise TensorError("cu_seqlens_q: expected page_table and cache_seqlens beside it")
        check_ranks(3, "[tokens, heads, dim]", q=q)
        lengths = int32_array("cache_seqlens", cache_seqlens)
        ends = numpy.concatenate(([0], numpy.cumsum(lengths)))
        options = read_options(0.0, **scores)
        out, lse = kvcache.attend_packed_pages(
            q, k_cache, v_cache, cu_seqlens_q, ends, page_table, options, None
        )
        lse = lse.transpose(0, 1).contiguous()
    return (out, lse, *_nothing(out)) if return_softmax_lse else out


def _nothing(out: Tensor) -> tuple[Tensor, Tensor]:
    empty = out.new_empty(0, dtype=torch.float32)
    return empty, empty


def _refuse(**arguments: Any) -> None:
    """Raise a SpecError for arguments that are not None."""
    for name, value in arguments.items():
        if value is not None:
            nearest = 0 if name == "attention_chunk" else None
            instead = f", which attn.flash_attn does not have; {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise SpecError(f"{name}: expected {nearest}, got {given(value)}{instead}")
