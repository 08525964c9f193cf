# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step's new latents in an engine's pages: one launch writes them, and may normalize and rotate them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..cache.appender import device_of
from ..cache.operations import Shape
from ..cache.rope import Norm, Rope
from ..errors import TensorError, expected
from ..memory.formats import MIXED_BYTES, MIXED_FEATURES, MIXED_FORMAT, Format
from ..memory.tensors import written
from .pools import scale_of
from .tokens import Tokens, strides_of, tokens_of, write_rows


def write_latents(
    pages: Tensor,
    latents: Tensor,
    slots: Tensor | Tokens,
    *,
    value_dim: int,
    scale: Tensor | float | None = None,
    q: Tensor | None = None,
    out: Tensor | None = None,
    rope: Rope | None = None,
    norm: Norm | None = None,
) -> Tensor | None:
    """Write latents (MLA) into a pool, and prepare them and the rotated part of queries on the way.

    pages       [pages, page_size, dim], of the dtype of latents or torch.float8_e4m3fn: the pool of one layer, which all
                query heads read; or torch.uint8 [pages, page_size, 656], lines of 576 features as vLLM's fp8_ds_mla and
                FlashMLA have them: 512 e4m3, a float32 scale for each 128, found from the largest, and 64 bfloat16
    latents     [tokens, dim], such as the output of DeepSeek's kv_a_proj_with_mqa; tokens past the slots are not read
    slots       int32 or int64 [at most tokens]; a negative slot's token is not written. `Tokens` of a step, with positions
                beside a rope
    value_dim   the features of a value, the first of a latent
    scale       of an 8-bit pool, a number or float32 [1]: an element x of the pool means x * scale. Numbers are divided by it
                and clamped; NaN becomes 0
    norm        of the value: Norm(k=weights [value_dim]), without weights of queries
    rope        Rope(cos, sin, first=value_dim, ...) turns the features after the value
    q           the features of queries that turn, [tokens or more, q_heads, rope.rotary_dim]: tokens and heads may lie
                apart, as in a slice of all features
    out         where turned queries are written, as q, such as the last features of absorbed queries; or q itself; by
                default a new tensor

    Returns the turned queries, or None without q. Waits for nothing on a GPU. Raises TensorError or SpecError."""
    tokens = tokens_of(slots)
    if pages.ndim != 3:
        raise expected(TensorError, "pages", "[pages, page_size, dim]", pages)
    mixed = pages.dtype is torch.uint8
    if mixed and pages.shape[2] != MIXED_BYTES:
        raise expected(TensorError, "pages", f"[pages, page_size, {MIXED_BYTES}] of uint8", pages)
    dim = MIXED_FEATURES if mixed else pages.shape[2]
    if latents.ndim != 2 or latents.shape[1] != dim or len(latents) < len(tokens):
        raise expected(TensorError, "latents", f"[{len(tokens)} or more, {dim}]", latents)
    short = {torch.float16: "f16", torch.bfloat16: "bf16"}.get(latents.dtype)
    if short is None:
        raise expected(TensorError, "latents", "float16 or bfloat16", latents)
    quantized = pages.dtype is torch.float8_e4m3fn
    if pages.dtype != latents.dtype and not quantized and not mixed:
        legal = "float16 or bfloat16, the dtype of latents, float8_e4m3fn, or uint8 with lines of 656 bytes"
        raise expected(TensorError, "pages", legal, pages)
    if quantized is (scale is None):
        legal = (
            "a number or float32 [1] beside pages of float8_e4m3fn"
            if quantized
            else "None beside pages of uint8, whose lines hold their scales"
            if mixed
            else "None beside pages of 16 bits"
        )
        raise expected(TensorError, "scale", legal, scale)
    if not isinstance(value_dim, int) or not 0 < value_dim <= dim or value_dim % 8:
        nearest = max(8, min(value_dim, dim) // 8 * 8) if isinstance(value_dim, int) else None
        raise expected(
            TensorError, "value_dim", f"a multiple of 8 from 8 to {dim}", value_dim, nearest=nearest
        )
    if quantized and (value_dim % 16 or 256 < value_dim < 512):
        legal = "a multiple of 16 up to 256, or 512, beside pages of float8_e4m3fn"
        nearest = 256 if value_dim > 256 else max(16, value_dim // 16 * 16)
        raise expected(TensorError, "value_dim", legal, value_dim, nearest=nearest)
    if mixed and value_dim != MIXED_FEATURES - MIXED_FORMAT.rest:
        nearest = MIXED_FEATURES - MIXED_FORMAT.rest
        raise expected(
            TensorError, "value_dim", f"{nearest} beside pages of uint8", value_dim, nearest=nearest
        )
    tokens.check_device(pages.device)
    lines = pages.unsqueeze(2)
    where = {"pages": pages.shape[0], "page_tokens": pages.shape[1]} | strides_of("k", lines, "pages")
    stored = MIXED_FORMAT if mixed else Format(short)
    if quantized:
        stored = Format("f8E4M3FN", "tensor")
        scale = scale_of("", scale, pages.device)
        where["k_meta"] = scale.data_ptr()
    shape = Shape(0, pages.shape[1], dim, value_dim, short, device_of(pages), stored, stored, latent=True)
    out = write_rows(where, shape, 1, tokens, latents.unsqueeze(1), None, q, out, rope, norm)
    written(pages)
    return out
