# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's functions on packed sequences."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from .. import _attn
from ..errors import TensorError, expected
from ..memory.tables import int32_array
from ..memory.views import is_autocast, is_traced
from ..run.launches import Asked
from ..run.torch_rules import cast_under_autocast
from .dense import attend_options, check_packed
from .kvcache import attend_packed_pages
from .options import Options, check_ranks, read_options, read_slopes

_launches = _attn.Launches()


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """Compute attention of packed sequences as flash_attn.flash_attn_varlen_func does.

    q                           [tokens, heads, dim], float16 or bfloat16
    k, v                        [tokens_k, heads_k, dim]; with a block table pages [pages, page_size, heads_k, dim]
    cu_seqlens_q, cu_seqlens_k  int32 or int64 [batch + 1]: sequence i has the rows from cu_seqlens_q[i] to
                                cu_seqlens_q[i + 1]. Rows after the last sequence get 0, and their gradients are 0
    max_seqlen_q, max_seqlen_k  are not read: they follow from the offsets
    block_table                 int32 [batch, pages of a sequence]: the page of each page_size tokens. Without gradients
    alibi_slopes                float32 [heads] or [batch, heads]
    return_attn_probs           returns (out, lse, probs): lse float32 [heads, tokens]; probs is empty

    All other arguments and the errors are those of `flash_attn_func`. Returns out [tokens, heads, dim]. Offsets are read
    on the CPU. Give them there: the call waits for offsets on a GPU.
    """
    traced = is_traced(q)
    asked = None
    if not traced:
        if is_autocast():
            q, k, v = cast_under_autocast(q, k, v)
        if block_table is None:
            tensors = q, k, v, alibi_slopes
            offsets = cu_seqlens_q, cu_seqlens_k
            options = dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs
            found = _launches.run(tensors, offsets + options)
            if found is not None:
                return _with_probs(*found) if return_attn_probs else found
            asked = Asked(_launches, tensors, offsets + options)
    options = read_options(dropout_p, softmax_scale, causal, window_size, softcap)
    check_ranks(3, "[tokens, heads, dim]", q=q)
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if len(getattr(offsets, "shape", ())) != 1:
            raise expected(TensorError, name, "int32 [batch + 1]", offsets)
    batch = len(cu_seqlens_q) - 1
    slopes = read_slopes(alibi_slopes, q.shape[1], batch, q)
    if block_table is not None:
        found = attend_packed_pages(q, k, v, cu_seqlens_q, cu_seqlens_k, block_table, options, slopes)
        return _with_probs(*found) if return_attn_probs else found[0]
    check_ranks(3, "[tokens, heads, dim]", k=k, v=v)
    if slopes is None or len(slopes) == 1:
        if slopes is not None and (alibi_slopes.ndim == 2 or not alibi_slopes.is_contiguous()):
            asked = None  # A prepared launch would read the caller's tensor.
        starts, starts_k = cu_seqlens_q, cu_seqlens_k
        if not traced:
            starts = int32_array("cu_seqlens_q", starts)
            starts_k = starts if cu_seqlens_k is cu_seqlens_q else int32_array("cu_seqlens_k", starts_k)
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
            cu_seqlens=starts,
            cu_seqlens_k=starts_k,
        )
    else:
        found = _by_sequence(
            q, k, v, cu_seqlens_q, cu_seqlens_k, options, slopes, deterministic, return_attn_probs
        )
    return _with_probs(*found) if return_attn_probs else found


def _by_sequence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    options: Options,
    slopes: list[Tensor],
    deterministic: bool,
    return_lse: bool,
) -> Any:
    """Compute sequences one by one, each with slopes of its own."""
    starts, starts_k = int32_array("cu_seqlens_q", cu_seqlens_q), int32_array("cu_seqlens_k", cu_seqlens_k)
    for name, offsets, total in (("cu_seqlens_q", starts, len(q)), ("cu_seqlens_k", starts_k, len(k))):
        if (
            len(offsets) != len(slopes) + 1
            or offsets[0]
            or (numpy.diff(offsets) < 0).any()
            or offsets[-1] > total
        ):
            legal = f"{len(slopes) + 1} offsets that rise from 0 to at most {total}"
            raise expected(TensorError, name, legal, offsets.tolist())
    parts = []
    for i, slope in enumerate(slopes):
        rows, tokens = slice(starts[i], starts[i + 1]), slice(starts_k[i], starts_k[i + 1])
        each = (tensor[part][None] for tensor, part in ((q, rows), (k, tokens), (v, tokens)))
        found = attend_options(*each, options, slope, deterministic, True)
        parts.append([result[0] for result in found])
    rest = len(q) - int(starts[-1])
    out, lse = (torch.cat(each) for each in zip(*parts, strict=True))
    if rest:
        out = torch.nn.functional.pad(out, (0, 0, 0, 0, 0, rest))
        lse = torch.nn.functional.pad(lse, (0, 0, 0, rest), value=-torch.inf)
    return (out, lse) if return_lse else out


def flash_attn_varlen_qkvpacked_func(
    qkv,
    cu_seqlens,
    max_seqlen,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Compute `flash_attn_varlen_func` of qkv [tokens, 3, heads, dim], which is read in place."""
    check_packed("qkv", qkv, 4, 1, 3)
    lengths = cu_seqlens, cu_seqlens, max_seqlen, max_seqlen
    options = dropout_p, softmax_scale, causal, window_size, softcap
    return flash_attn_varlen_func(
        *qkv.unbind(1), *lengths, *options, alibi_slopes, deterministic, return_attn_probs
    )


def flash_attn_varlen_kvpacked_func(
    q,
    kv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Compute `flash_attn_varlen_func` of q [tokens, heads, dim] and kv [tokens_k, 2, heads_k, dim], which is read in
    place."""
    check_packed("kv", kv, 4, 1, 2)
    lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    options = dropout_p, softmax_scale, causal, window_size, softcap
    return flash_attn_varlen_func(
        q, *kv.unbind(1), *lengths, *options, alibi_slopes, deterministic, return_attn_probs
    )


def _with_probs(out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return out, lse.transpose(0, 1).contiguous(), out.new_empty(0)
