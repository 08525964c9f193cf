# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary embeddings of new rows, as flash-attn applies them before it appends keys."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TensorError, expected, given


def check_rotary(cos: object, sin: object, dim: int, q: Tensor) -> None:
    """Raise a TensorError for tables that do not rotate heads of `dim` features."""
    legal = f"[positions, rotary dim / 2], rotary dim at most the {dim} features of a head, on {q.device}"
    for name, table in (("rotary_cos", cos), ("rotary_sin", sin)):
        if not isinstance(table, Tensor) or table.ndim != 2 or not table.is_floating_point():
            raise expected(TensorError, name, legal, given(table))
        if not 0 < 2 * table.shape[1] <= dim or table.device != q.device:
            nearest = [table.shape[0], dim // 2]
            raise expected(TensorError, name, legal, f"{given(table)} on {table.device}", nearest=nearest)
    if cos.shape != sin.shape:  # type: ignore[attr-defined]
        raise expected(TensorError, "rotary_sin", f"the shape of rotary_cos, {list(cos.shape)}", given(sin))  # type: ignore[attr-defined]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """Rotate the first features of x [batch, seq, heads, dim], in float32, at `positions` [batch, seq].

    interleaved  pairs are features 0 and 1, 2 and 3, and so on; else features i and i + rotary dim / 2"""
    half = cos.shape[1]
    angles = [table[positions].float().unsqueeze(2) for table in (cos, sin)]  # [batch, seq, 1, half]
    turned, rest = x[..., : 2 * half].float(), x[..., 2 * half :]
    if interleaved:
        first, second = turned.unflatten(-1, (half, 2)).unbind(-1)
    else:
        first, second = turned.split(half, -1)
    found = first * angles[0] - second * angles[1], first * angles[1] + second * angles[0]
    pairs = torch.stack(found, -1).flatten(-2) if interleaved else torch.cat(found, -1)
    return torch.cat((pairs.to(x.dtype), rest), -1)
