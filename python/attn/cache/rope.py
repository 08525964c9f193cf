# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary position embeddings and norms, which a write of new tokens applies on the way into a cache.

Numbers stay float32 from the load to the store, and are rounded once: to the dtype of the queries, to that of a plain
cache, or to quantized values. PyTorch's separate operations round after each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError, TensorError, expected
from ..memory.views import strided, view_of


@dataclass(frozen=True, eq=False)
class Rope:
    """A rotary position embedding, by its tables.

    cos, sin     [positions, rotary_dim / 2], float32 or the cache's dtype, contiguous: row p has the cosines and sines of
                 position p. Scaled embeddings (YaRN, Llama 3) are other tables; a factor of attention is in both
    interleaved  whether features 2 * i and 2 * i + 1 are a pair (GPT-J, DeepSeek); else i and i + rotary_dim / 2 (Llama,
                 GPT-NeoX)
    first        the first feature that turns, a multiple of 8: 512 for DeepSeek's latents, 128 for its expanded keys

    Features first to first + rotary_dim turn, x' = x * cos - y * sin and y' = y * cos + x * sin for a pair (x, y); the
    others stay. Multiples of 16 are fastest (of 8 if interleaved). Raises TensorError or SpecError."""

    cos: Any
    sin: Any
    interleaved: bool = False
    first: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.first, int) or self.first < 0 or self.first % 8:
            nearest = max(0, round(self.first / 8) * 8) if isinstance(self.first, int) else None
            raise expected(SpecError, "rope.first", "a multiple of 8 from 0 on", self.first, nearest=nearest)
        shapes = [strided(view_of(name, getattr(self, name), 0, [])[1]).shape for name in ("cos", "sin")]
        for name, shape in zip(("cos", "sin"), shapes, strict=True):
            if len(shape) != 2 or not shape[0] or not shape[1]:
                raise expected(
                    TensorError, f"rope.{name}", "[positions, rotary_dim / 2]", getattr(self, name)
                )
        if shapes[0] != shapes[1]:
            raise expected(TensorError, "rope.sin", f"the shape of cos, {list(shapes[0])}", self.sin)

    @property
    def positions(self) -> int:
        """The number of positions that the tables have."""
        return int(self.cos.shape[0])

    @property
    def rotary_dim(self) -> int:
        """The number of features that turn."""
        return 2 * int(self.cos.shape[1])


@dataclass(frozen=True, eq=False)
class Norm:
    """An RMS norm of each head: x * weight / sqrt(mean(x^2) + epsilon). A latent's norm is that of the value, its first
    features.

    k, q     weights [head_dim], float32 or the cache's dtype, contiguous; `q` is needed where queries are written. A model
             that multiplies by 1 + weight gives 1 + weight. With latents `k` is [value_dim], and there is no `q`
    epsilon  is added to the mean square

    Raises SpecError."""

    k: Any
    q: Any = None
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, (int, float)) or not 0 <= self.epsilon < math.inf:
            raise expected(SpecError, "norm.epsilon", "a finite number from 0 on", self.epsilon)
