# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn refuses in vLLM, with the reason. vLLM asks before it loads a model on a GPU; on a CPU a layer asks when it is
made."""

from __future__ import annotations

import re

import torch

from ..errors import SpecError
from ..memory.page_sizes import LARGEST_PAGE, PAGE_STEP
from ..serving import Layer, page_of
from ..serving.formats import PACKED
from .caches import NEAREST, OPTION

PAGE_SIZES = tuple(range(PAGE_STEP, LARGEST_PAGE + 1, PAGE_STEP))
"""Tokens of a page that kernels are made for. vLLM cuts larger blocks into pages."""

FORMATS = {
    "auto": None,
    "float16": None,
    "bfloat16": None,
    "fp8": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
}
"""attn's formats by vLLM's kv_cache_dtype; None: the model's dtype."""

LATENT_FORMATS = {name: format for name, format in FORMATS.items() if format != "fp8_e5m2"}
"""Those of latents."""

LATENT_DIMS = (320, 512, 576)
"""Features of a latent that vLLM's metadata of MLA have."""

_OF_FORMAT = re.compile(r"^kv\[0\]\.(key|value): (?=expected a dim )")

VAGUE = frozenset(f"{what} not supported" for what in ("head_size", "dtype", "kv_cache_dtype", "block_size"))
"""What vLLM says of these without a reason; `refusals` says more."""


def refusals(
    head_size: int,
    dtype: torch.dtype,
    kv_cache_dtype: str | None = "auto",
    block_size: int | None = None,
    attn_type: str = "decoder",
    packed: str | None = None,
    latent: bool = False,
    value_dim: int | None = None,
) -> list[str]:
    """Return why layers are refused, with the nearest legal values. A `block_size` of None is any. `packed`: attn's format
    that is asked for beside kv_cache_dtype. `latent`: layers of MLA, whose keys have `head_size` features, of which the
    first `value_dim` are the value."""
    found, formats = [], LATENT_FORMATS if latent else FORMATS
    if packed is not None and latent:
        found.append(f"{OPTION}: expected none beside MLA, got {packed}; nearest legal: kv_cache_dtype fp8")
        packed = None
    if latent and head_size not in LATENT_DIMS:
        legal = f"{', '.join(map(str, LATENT_DIMS[:-1]))} or {LATENT_DIMS[-1]} features of a latent"
        nearest = min(LATENT_DIMS, key=lambda dim: abs(dim - head_size))
        found.append(f"head_size: expected {legal} in vLLM, got {head_size}; nearest legal: {nearest}")
    attn_type = getattr(attn_type, "value", attn_type)  # vLLM has a class of such words.
    if attn_type != "decoder":
        found.append(f"attention type: expected 'decoder', got '{attn_type}': attn serves no encoder here")
    smallest = PAGE_SIZES[0]
    page = page_of(block_size or smallest)
    if page % smallest:
        below = (block_size or 0) // smallest * smallest
        nearest = f"{below} or {below + smallest}" if below else smallest
        found.append(
            f"block_size: expected a multiple of {smallest} tokens, got {block_size}; nearest legal: {nearest}"
        )
    kept = packed if packed in PACKED else formats.get(kv_cache_dtype or "auto")
    if kv_cache_dtype is not None and kv_cache_dtype not in formats:
        nearest = "fp8" if latent else NEAREST.get(kv_cache_dtype, "auto")
        hint = nearest if nearest in formats else f'auto with additional_config={{"{OPTION}": "{nearest}"}}'
        legal = f"one of {', '.join(formats)}"
        found.append(f"kv_cache_dtype: expected {legal}, got {kv_cache_dtype}; nearest legal: {hint}")
    elif kv_cache_dtype in ("float16", "bfloat16") and dtype is not getattr(torch, kv_cache_dtype):
        found.append(f"kv_cache_dtype: expected auto or the model's {dtype}, got {kv_cache_dtype}")
    try:
        named = dict(head_dim=head_size, dtype=dtype, page_size=page, format=kept, value_dim=value_dim)
        if not latent or value_dim is not None:
            Layer(q_heads=1, kv_heads=1, **named)
    except SpecError as error:
        found.append(_OF_FORMAT.sub("head_size: ", str(error)).replace("head_dim", "head_size"))
    return found


def latent_block(tokens: int) -> int:
    """Return the tokens of a block of latents on a GPU where `tokens` is what other layers have: a kernel copies 64 as one box,
    and four boxes of 16 take longer."""
    return max(tokens, 64)
