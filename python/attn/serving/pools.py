# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New keys and values are written into pools of an engine, at slots.

A pool is any view `[pages, page_size, heads, dim]` whose features are contiguous; the slot of a token is
`page * page_size + offset`. Engines pad their slots with negative numbers, whose tokens are not written."""

from __future__ import annotations

import functools
import math
import numbers

import torch
from torch import Tensor

from ..cache.appender import device_of
from ..cache.operations import Shape
from ..cache.rope import Norm, Rope
from ..describe.stores import Paged
from ..errors import SpecError, TensorError, expected
from ..memory.tensors import written
from .tokens import Tokens, strides_of, tokens_of, write_rows

_FP8 = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}


def split_lines(cache: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Return the views of keys and of values in pages whose lines hold both, a key and then a value.

    cache   [pages, heads, page_size, 2 * head_dim], with any strides

    The views are [pages, page_size, heads, head_dim]."""
    if cache.ndim != 4 or cache.shape[3] != 2 * head_dim:
        raise expected(TensorError, "cache", f"[pages, heads, page_size, {2 * head_dim}]", cache)
    keys, values = cache.transpose(1, 2).split(head_dim, -1)
    return keys, values


def pages_of(pool: Tensor, page_size: int) -> Tensor:
    """Return the view in pages of a pool of tokens. Tokens past the last whole page are left out.

    pool  [slots, heads, dim], with contiguous features

    The view is [slots // page_size, page_size, heads, dim]."""
    if pool.ndim != 3:
        raise expected(TensorError, "pool", "[slots, heads, dim]", pool)
    pages = len(pool) // page_size
    return pool[: pages * page_size].unflatten(0, (pages, page_size))


def page_table(slots: Tensor, page_size: int) -> Tensor:
    """Return the block table of sequences, whose engine names the slots of tokens.

    slots  integers [sequences, pages]: the slot of the first token of each page. Tokens of a page lie in one page of the
           pool, in order. A negative slot is of a page that no row sees: it becomes page 0

    The table is [sequences, pages]. Nothing is copied to the host."""
    if slots.ndim != 2:
        raise expected(TensorError, "slots", "[sequences, pages]", slots)
    return slots.clamp(min=0) // page_size


def write_tokens(
    k_pages: Tensor,
    v_pages: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor | Tokens,
    *,
    k_scale: Tensor | float | None = None,
    v_scale: Tensor | float | None = None,
    q: Tensor | None = None,
    out: Tensor | None = None,
    rope: Rope | None = None,
    norm: Norm | None = None,
) -> Tensor | None:
    """Write keys and values into pools, and prepare them and the queries on the way.

    k_pages, v_pages  [pages, page_size, heads, dim], of the dtype of k and v, or of torch.float8_e4m3fn or float8_e5m2
    k, v              [tokens, heads, dim], bfloat16 or float16; tokens past the slots are not read
    slots             int32 or int64 [at most tokens]; a negative slot's token is not written. `Tokens` of a step: its
                      layers share one list
    k_scale, v_scale  of 8-bit pools: an element x of a pool means x * scale. Numbers are divided by it and clamped; NaN
                      becomes 0
    rope, norm        what is done to each head of keys and queries, the norm first; `rope` needs `Tokens` with positions
    q                 [tokens or more, q_heads, head_dim] beside `rope` or `norm`
    out               where prepared queries are written, as q, or q itself; by default a new tensor

    One kernel of attn writes all, and returns the prepared queries, or None without q. On a GPU it does not write a slot
    past the pool, and a position past the tables reads their last row; on a CPU both are a TensorError. Waits for nothing.
    Raises TensorError for other shapes and dtypes."""
    tokens = tokens_of(slots)
    for name, pool, rows, scale in (("k", k_pages, k, k_scale), ("v", v_pages, v, v_scale)):
        _check(name, pool, rows, tokens, scale)
    if v_pages.shape[:3] != k_pages.shape[:3] or v_pages.device != k_pages.device:
        legal = f"{list(k_pages.shape[:3])} pages, tokens and heads on {k_pages.device}, as k_pages"
        raise expected(TensorError, "v_pages", legal, v_pages)
    tokens.check_device(k_pages.device)
    pages, shape, _scales = _described(k_pages, v_pages, k.dtype, k_scale, v_scale)
    out = write_rows(pages, shape, k_pages.shape[2], tokens, k, v, q, out, rope, norm)
    written(k_pages, v_pages)
    return out


def _described(
    k_pages: Tensor,
    v_pages: Tensor,
    dtype: torch.dtype,
    k_scale: Tensor | float | None,
    v_scale: Tensor | float | None,
) -> tuple[dict[str, int], Shape, list[Tensor]]:
    """Return the pages of a layer as a kernel takes them, what decides the kernel, and tensors to keep."""
    pages = {"pages": k_pages.shape[0], "page_tokens": k_pages.shape[1]}
    scales = []  # Kept until the launch.
    for name, pool, scale in (("k", k_pages, k_scale), ("v", v_pages, v_scale)):
        pages |= strides_of(name, pool, f"{name}_pages")
        if scale is not None:
            scales.append(scale_of(name, scale, pool.device))
            pages[f"{name}_meta"] = scales[-1].data_ptr()
    sizes = k_pages.shape[1], k_pages.shape[3], v_pages.shape[3]
    return pages, _shape_of(*sizes, dtype, device_of(k_pages), k_pages.dtype, v_pages.dtype), scales


@functools.lru_cache(maxsize=256)
def _shape_of(
    page_size: int,
    key_dim: int,
    value_dim: int,
    dtype: torch.dtype,
    device: str,
    key: torch.dtype,
    value: torch.dtype,
) -> Shape:
    short = {torch.float16: "f16", torch.bfloat16: "bf16"}.get(dtype)
    if short is None:
        raise expected(TensorError, "k", "float16 or bfloat16", dtype)
    formats: dict[str, str] = {}
    for part, stored in (("key", key), ("value", value)):
        if stored in _FP8:
            formats |= {part: _FP8[stored], f"{part}_scales": "tensor"}
    try:
        parts = Paged(page_size=page_size, dtype=short, **formats).formats()
    except SpecError as error:
        raise TensorError(f"k_pages: {str(error).removeprefix('Paged(page_size): ')}") from None
    return Shape(0, page_size, key_dim, value_dim, short, device, *parts)


def scale_of(name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """Return the scale of a pool in memory of its device: that of "k" or "v", or with "" of both. TensorError."""
    argument = f"{name}_scale".lstrip("_")
    if not isinstance(scale, Tensor):
        if not isinstance(scale, numbers.Real) or not 0 < scale < math.inf:
            raise expected(
                TensorError, argument, f"a number above 0, or float32 [1] on {device}", scale, nearest=1.0
            )
        return torch.full((1,), float(scale), dtype=torch.float32, device=device)
    if scale.dtype is not torch.float32 or scale.numel() != 1 or scale.device != device:
        raise expected(TensorError, argument, f"a number, or float32 [1] on {device}", scale)
    return scale


def _check(name: str, pool: Tensor, rows: Tensor, tokens: Tokens, scale: object) -> None:
    pages = f"{name}_pages"
    if pool.ndim != 4:
        raise expected(TensorError, pages, "[pages, page_size, heads, dim]", pool)
    heads, dim = pool.shape[2:]
    if rows.ndim != 3 or rows.shape[1:] != (heads, dim) or len(rows) < len(tokens):
        raise expected(TensorError, name, f"[{len(tokens)} or more, {heads}, {dim}]", rows)
    if pool.dtype in _FP8:
        if scale is None:
            raise TensorError(f"{name}_scale: expected beside pages of {_FP8[pool.dtype]}, got none")
    elif pool.dtype != rows.dtype:
        raise expected(TensorError, pages, f"{rows.dtype}, as {name}, or an 8-bit float", pool)
    elif scale is not None:
        raise TensorError(f"{name}_scale: expected none beside pages of {pool.dtype}, got {scale}")
