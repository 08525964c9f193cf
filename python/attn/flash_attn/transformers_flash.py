# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention implementation "attn_flash": Transformers' own flash path over attn.flash_attn.

Transformers, and trainers over it, ask for a name with "flash" in it where inputs are packed or free of padding, and
newer continuous batching takes no other. Such a name stands for functions like flash-attn's, which Transformers loads
by it. Sinks (`s_aux`) go along where Transformers passes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import transformers.masking_utils as masking
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import modeling_flash_attention_utils as flash

from ..adapters.transformers_fallback import FLASH_NAME, PAGED_FLASH_NAME
from ..errors import TensorError
from .dense import attend_options, flash_attn_func
from .kvcache import flash_attn_with_kvcache
from .options import read_options
from .varlen import flash_attn_varlen_func


def _attend(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    deterministic=False,
    s_aux=None,
):
    options = dropout_p, softmax_scale, causal, window_size, softcap
    if s_aux is None:
        return flash_attn_func(q, k, v, *options, deterministic=deterministic)
    return attend_options(
        q, k, v, read_options(*options), None, deterministic, False, sink_logits=s_aux.float()
    )


def _attend_packed(
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
    deterministic=False,
    s_aux=None,
):
    options = dropout_p, softmax_scale, causal, window_size, softcap
    if s_aux is None:
        offsets = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        return flash_attn_varlen_func(q, k, v, *offsets, *options, deterministic=deterministic)
    return attend_options(
        q,
        k,
        v,
        read_options(*options),
        None,
        deterministic,
        False,
        sink_logits=s_aux.float(),
        cu_seqlens=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
    )


@functools.wraps(flash_attn_with_kvcache)
def _attend_cache(*given: Any, s_aux: Tensor | None = None, **named: Any) -> Any:
    if s_aux is not None:
        raise TensorError(
            "s_aux: expected None, as attn.flash_attn has no sinks over a block table; set max_blocks_per_request=0 in "
            "the ContinuousBatchingConfig"
        )
    return flash_attn_with_kvcache(*given, **named)


def _with_attn(load: Callable) -> Callable:
    """Wrap Transformers' loader of flash-attn's functions, so that it finds those of "attn_flash"."""

    @functools.wraps(load)
    def lazy_imports(implementation: str | None, *args: object, **kwargs: object) -> tuple:
        if implementation in (FLASH_NAME, PAGED_FLASH_NAME):
            return _attend, _attend_packed, _attend_cache, flash._pad_input, flash._unpad_input
        return load(implementation, *args, **kwargs)

    lazy_imports.attn_loads = load
    return lazy_imports


def register_flash() -> None:
    """Register "attn_flash", and "paged|attn_flash", by which continuous batching before 5.19 asks for it."""
    from transformers.integrations.flash_attention import flash_attention_forward
    from transformers.integrations.flash_paged import paged_attention_forward

    if not hasattr(flash._lazy_imports, "attn_loads"):
        flash._lazy_imports = _with_attn(flash._lazy_imports)
    AttentionInterface.register(FLASH_NAME, flash_attention_forward)
    AttentionInterface.register(PAGED_FLASH_NAME, paged_attention_forward)
    for name in (FLASH_NAME, PAGED_FLASH_NAME):
        AttentionMaskInterface.register(name, masking.flash_attention_mask)
