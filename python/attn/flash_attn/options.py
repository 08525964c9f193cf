# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's options in attn's words: windows and causal masks are visibilities, caps and ALiBi score functions."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..describe.functions import check_cap
from ..describe.functions import softcap as capped
from ..describe.score import Score, trace
from ..describe.visibility import MAX_SIZE, Visibility, sides
from ..errors import SpecError, TensorError, expected, given


class Options(NamedTuple):
    """The visibility, the scale and the cap of a call."""

    see: Visibility
    softcap: float | None
    scale: float | None
    ends_at_rows: bool
    """Whether no row sees a position after its own."""

    def score(self, heads: int, traced: bool = False) -> Any:
        """Return the score function with ALiBi, which reads `slopes` of the query heads. In compiled code (`traced`) it
        is a function: PyTorch cannot make a Score."""
        if traced:
            return _alibi_function(self.softcap, self.ends_at_rows)
        return _alibi(heads, self.softcap, self.ends_at_rows)

    def capped(self) -> Score:
        """Return the score function of the cap alone."""
        return _capped(self.softcap)


def read_options(
    dropout_p: object, softmax_scale: object, causal: object, window_size: object, softcap: object
) -> Options:
    """Check flash-attn's options. SpecError, which names the argument."""
    if dropout_p != 0:
        raise expected(SpecError, "dropout_p", "0.0, as attn has no dropout", dropout_p, nearest=0.0)
    if not isinstance(causal, (bool, int)) or causal not in (0, 1):
        raise expected(SpecError, "causal", "True or False", causal)
    see = sides(bool(causal), _window(window_size))
    scale = None
    if softmax_scale is not None:
        if isinstance(softmax_scale, bool) or not isinstance(softmax_scale, (int, float)):
            raise expected(SpecError, "softmax_scale", "a number, or None for 1/sqrt(headdim)", softmax_scale)
        scale = float(softmax_scale)
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float)) or not 0 <= softcap < math.inf:
        raise expected(SpecError, "softcap", "a number from 0.0 on, which is none", softcap, nearest=0.0)
    check_cap(softcap)
    ends_at_rows = bool(causal) or (window_size[1] == 0)  # type: ignore[index]
    return Options(see, float(softcap) or None, scale, ends_at_rows)


def _window(window_size: object) -> object:
    """Return window_size with sides that are at most what a visibility takes: flash-attn's callers give large numbers
    for no limit."""
    if not isinstance(window_size, (tuple, list)):
        return window_size
    return tuple(
        -1 if isinstance(side, int) and not isinstance(side, bool) and side >= MAX_SIZE else side
        for side in window_size
    )


@functools.lru_cache(maxsize=256)
def _alibi(heads: int, softcap: float | None, ends_at_rows: bool) -> Score:
    return trace(_alibi_function(softcap, ends_at_rows), (("slopes", (heads,)),))


def _alibi_function(softcap: float | None, ends_at_rows: bool) -> Any:
    def score(s: Any, h: Any, qi: Any, ki: Any, slopes: Any) -> Any:
        s = s if softcap is None else capped(s, softcap)
        return s + slopes[h] * (ki - qi) if ends_at_rows else s - slopes[h] * abs(qi - ki)

    return score


@functools.lru_cache(maxsize=256)
def _capped(softcap: float | None) -> Score:
    return trace(lambda s, h, qi, ki: capped(s, softcap))


def read_slopes(alibi_slopes: object, heads: int, batch: int, like: Tensor) -> list[Tensor] | None:
    """Return ALiBi's slopes [heads] of all sequences, or one for each; None without ALiBi. TensorError."""
    if alibi_slopes is None:
        return None
    legal = f"float32 [{heads}] or [{batch}, {heads}] on {like.device}: [heads] or [batch, heads]"
    if not isinstance(alibi_slopes, Tensor) or alibi_slopes.dtype != torch.float32:
        raise expected(TensorError, "alibi_slopes", legal, given(alibi_slopes))
    if alibi_slopes.shape not in ((heads,), (batch, heads)) or alibi_slopes.device != like.device:
        raise expected(TensorError, "alibi_slopes", legal, f"{given(alibi_slopes)} on {alibi_slopes.device}")
    if alibi_slopes.ndim == 1:
        return [alibi_slopes.contiguous()]
    if batch == 0:
        return [alibi_slopes.new_zeros(heads)]
    if batch == 1 or alibi_slopes.stride(0) == 0:
        return [alibi_slopes[0].contiguous()]
    return [each.contiguous() for each in alibi_slopes]


def padded_heads(*tensors: Tensor) -> list[Tensor]:
    """Pad the features of tensors to a multiple of 8, as flash-attn does."""
    return [torch.nn.functional.pad(tensor, (0, -tensor.shape[-1] % 8)) for tensor in tensors]


def check_ranks(rank: int, dims: str, **tensors: Any) -> None:
    """Raise a TensorError for anything but tensors of PyTorch of this rank."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.ndim != rank:
            raise expected(TensorError, name, f"a tensor of PyTorch, {dims}", given(tensor))
