# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A layer's pages of keys and values in the layer's dtype or in 8-bit floats, as a kernel reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from ..cache.rope import Norm, Rope
from ..errors import TensorError, expected
from .pools import split_lines, write_tokens
from .tokens import Tokens

_FLOATS = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class Pages(Sequence[Tensor]):
    """A layer's pages in an engine's memory: the tensors that its kernel reads, in its order. `Layer.pages` returns it."""

    def __init__(
        self,
        cache: Tensor,
        head_dim: int,
        format: str | None = None,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
    ):
        if format is not None:
            if cache.element_size() != 1:
                raise expected(TensorError, "cache", f"elements of a byte, of {format}", cache)
            cache = cache.view(_FLOATS[format])
        self.cache = cache
        self._tensors: tuple[Tensor, ...] = split_lines(cache, head_dim)
        self._scales: dict[str, Tensor] = {}
        for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
            if format is None and scale is not None:
                raise TensorError(f"{name}: expected none beside pages of {cache.dtype}, got one")
            if format is not None:
                self._scales[name] = _scale(name, scale, cache.device)
        self._tensors += tuple(self._scales.values())

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        return self._tensors[index]

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def write(
        self,
        k: Tensor,
        v: Tensor,
        slots: Tensor | Tokens,
        *,
        q: Tensor | None = None,
        out: Tensor | None = None,
        rope: Rope | None = None,
        norm: Norm | None = None,
    ) -> Tensor | None:
        """Write new keys and values; prepare keys and queries on the way.

        k, v        [tokens, kv_heads, head_dim] of the layer's dtype; tokens past the slots are not read
        slots       int32 or int64 [tokens], or the `Tokens` of a step, whose layers share one list
        rope, norm, q, out  as of `write_tokens`

        Elements of 8-bit floats are divided by the scale and clamped, and NaN becomes 0. The call waits for nothing on a GPU.
        Returns the prepared queries, or None without q. Raises TensorError."""
        prepared: dict[str, Any] = dict(q=q, out=out, rope=rope, norm=norm)
        return write_tokens(self._tensors[0], self._tensors[1], k, v, slots, **self._scales, **prepared)


def _scale(name: str, scale: Tensor | None, device: torch.device) -> Tensor:
    if scale is None:
        return torch.ones(1, dtype=torch.float32, device=device)
    if scale.dtype is not torch.float32 or scale.numel() != 1 or scale.device != device:
        raise expected(TensorError, name, f"float32 [1] on {device}", scale)
    return scale.view(1)
