# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the calls of a model's layer that attn does not serve, and the cause."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..describe.spec import Spec
from ..describe.stores import Packed
from ..describe.visibility import all_tokens
from ..errors import SpecError
from ..memory.views import needs_gradient
from .head_gates import LayerGates
from .rows.padded_calls import Scores
from .rows.padded_gradients import missing_gradient
from .span_mask import SpanMask, is_causal_or_window
from .transformers_cache import layer_of


def unserved_cause(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float,
    see: str,
    softcap: float,
    sinks: Tensor | None,
    gates: LayerGates | None,
) -> str | None:
    """Return the cause for which attn does not serve a call; None if it serves it. `see`: the text of a Visibility, or
    "" if unknown."""
    if dropout:
        return f"dropout of {dropout}"
    if query.dtype not in (torch.bfloat16, torch.float16) or not query.dtype == key.dtype == value.dtype:
        kinds = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in (query, key, value))
        return f"tensors of {', '.join(kinds)} (attn has bfloat16 and float16)"
    differentiates = needs_gradient(query, key, value, sinks)
    if differentiates:
        where = (
            "in compiled code"
            if torch.compiler.is_compiling()
            else "over a cache in pages"
            if layer_of(key) is not None
            else "beside head gates"
            if gates is not None
            else ""
        )
        if where:
            return f"a backward pass {where} (use torch.no_grad())"
    if mask is None:
        if not see:
            return "a window without a mask that says what it is"
    elif not isinstance(mask, SpanMask):
        return "a mask with a value for each row and token"
    else:
        shape = query.shape[0], 1, query.shape[2], key.shape[2]
        # A mask of a step over pages, whose rows may be of several sequences one after the other.
        if mask.handle and mask.plan is None:
            shape = query.shape[0] * query.shape[2], 1, 1, mask.shape[3]
        if tuple(mask.shape) != shape and layer_of(key) is None:
            return "a mask of another shape than the scores"
        if gates is not None and (mask.positions is not None or not is_causal_or_window(mask.see)):
            return "head gates beside a mask that is more than causal with padding"
    refusal = _refusal(
        query.shape[1], key.shape[1], value.shape[1], query.shape[3], key.shape[3], value.shape[3], scale
    )
    if refusal is None and differentiates:
        scores = Scores(scale, softcap)
        return missing_gradient(query, key, value, sinks is not None, see, scores)
    return refusal


@torch._dynamo.assume_constant_result
def _refusal(*sizes: float) -> str | None:
    """Return the error that a description would raise. Compiled code asks when it is traced."""
    return _refusal_of(*sizes)


@functools.lru_cache(maxsize=1024)
def _refusal_of(
    q_heads: int, k_heads: int, v_heads: int, q_dim: int, k_dim: int, v_dim: int, scale: float
) -> str | None:
    if k_heads != v_heads or q_dim != k_dim:
        return f"keys [{k_heads}, {k_dim}] beside values [{v_heads}, {v_dim}] and queries of {q_dim} features"
    try:
        Spec(
            q_heads=q_heads,
            kv_heads=k_heads,
            head_dim=q_dim,
            value_dim=v_dim,
            dtype="bfloat16",
            kv=[Packed()],
            see=all_tokens(),
            scale=scale,
        )
    except SpecError as error:
        return str(error)
    return None
