"""Tensors that attn makes itself: results beside the caller's tensors, and bfloat16 for NumPy, which has none.

An array of uint16 stands for bfloat16 wherever that is expected, by its bits; ml_dtypes' bfloat16 is accepted too.
What is done with tensors that are given lies in slots.py.
"""

from __future__ import annotations

import sys
from typing import Any

from .dtypes import DTYPES, short_name
from .errors import TensorError, given


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor for results, in the library and on the device of `like`; `dtype` by attn's name ("bf16", "f32"). For
    arrays of other libraries that lie in CPU memory it is NumPy's. Errors: TensorError."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, DTYPES[dtype][0]), device=like.device)
    import numpy

    device = getattr(like, "__dlpack_device__", lambda: (1, 0))()[0]
    if not isinstance(like, numpy.ndarray) and device != 1:
        raise TensorError(
            f"out: expected where results go, as for arrays on a GPU of other libraries than PyTorch, got None beside "
            f"{given(type(like).__name__)}"
        )
    if dtype != "bf16":
        return numpy.empty(shape, DTYPES[dtype][0])
    own = getattr(like, "dtype", None)
    return numpy.empty(
        shape, own if isinstance(own, numpy.dtype) and short_name(own) == "bf16" else numpy.uint16
    )


def bfloat16_bits(values: Any) -> Any:
    """Numbers as the bits of bfloat16 (uint16), rounded to nearest, ties to even; any shape."""
    import numpy

    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return numpy.where(is_nan, (bits >> 16) | 0x40, rounded).astype(numpy.uint16)


def from_bfloat16_bits(bits: Any) -> Any:
    """The numbers (float32) that bits of bfloat16 (uint16) stand for; any shape."""
    import numpy

    return (numpy.asarray(bits, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
