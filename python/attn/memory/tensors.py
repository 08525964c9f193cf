# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that attn makes itself: results beside the caller's tensors, and bfloat16 for NumPy, which has none.

An array of uint16 stands for bfloat16, by its bits; ml_dtypes' bfloat16 is accepted too. Given tensors are handled in
views.py.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import TensorError, given
from .dtypes import numpy_name, short_name, torch_dtype


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Make a tensor for results, in the library and on the device of `like`; `dtype` by attn's name ("bf16", "f32").
    For arrays of other libraries in CPU memory it is NumPy's. Raises TensorError."""
    if _is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=torch_dtype(torch, dtype), device=like.device)
    import numpy

    device = getattr(like, "__dlpack_device__", lambda: (1, 0))()[0]
    if not isinstance(like, numpy.ndarray) and device != 1:
        raise TensorError(
            f"out: expected where results go, as for arrays on a GPU of other libraries than PyTorch, got None beside "
            f"{given(type(like).__name__)}"
        )
    if dtype != "bf16":
        return numpy.empty(shape, numpy_name(dtype))
    own = getattr(like, "dtype", None)
    return numpy.empty(
        shape, own if isinstance(own, numpy.dtype) and short_name(own) == "bf16" else numpy.uint16
    )


def as_numpy(name: str, tensor: Any) -> Any:
    """Return a contiguous array of a tensor on the CPU, or of a list of integers; bfloat16 and 8-bit floats as their
    bits, integers as int32. TensorError."""
    import numpy

    try:
        if _is_torch(tensor):
            torch = sys.modules["torch"]
            tensor = tensor.detach()
            bits = {torch.bfloat16: torch.uint16}.get(tensor.dtype)
            if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
                bits = torch.uint8
            array = (tensor.contiguous().view(bits) if bits is not None else tensor).numpy()
        elif hasattr(tensor, "__dlpack__") and not isinstance(tensor, numpy.ndarray):
            array = numpy.from_dlpack(tensor)
        else:
            array = numpy.asarray(tensor)
        if short_name(array.dtype) == "bf16":
            array = array.view(numpy.uint16)
        if array.dtype == numpy.int64:
            array = array.astype(numpy.int32)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TensorError(f"{name}: expected a tensor on the CPU: {error}") from None
    if short_name(array.dtype) is None:
        raise TensorError(f"{name}: expected numbers, got {given(tensor)}")
    return numpy.ascontiguousarray(array)


def swap_axes(tensor: Any) -> Any:
    """Return a view with the second and third dimension exchanged."""
    return tensor.transpose(1, 2) if _is_torch(tensor) else tensor.swapaxes(1, 2)


def contiguous(tensor: Any, swapped: bool) -> Any:
    """Return a copy whose dimensions are in order in memory; `swapped`: with the second and third exchanged.
    TensorError."""
    import numpy

    if not (_is_torch(tensor) or isinstance(tensor, numpy.ndarray)):
        library = type(tensor).__name__
        raise TensorError(
            f"q: expected memory in the order of k and v, as {library} cannot be copied by attn"
        )
    tensor = swap_axes(tensor) if swapped else tensor
    return tensor.contiguous() if _is_torch(tensor) else numpy.ascontiguousarray(tensor)


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def bfloat16_bits(values: Any) -> Any:
    """Return numbers as the bits of bfloat16 (uint16), rounded to nearest, ties to even; any shape."""
    import numpy

    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    with numpy.errstate(over="ignore"):  # NaN overflows.
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return numpy.where(is_nan, (bits >> 16) | 0x40, rounded).astype(numpy.uint16)


def from_bfloat16_bits(bits: Any) -> Any:
    """Return the numbers (float32) of the bits of bfloat16 (uint16); any shape."""
    import numpy

    return (numpy.asarray(bits, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def from_e4m3_bits(bits: Any) -> Any:
    """Return the numbers (float32) of the bits of float8_e4m3fn (uint8); any shape."""
    import numpy

    codes = numpy.asarray(bits, numpy.uint8).astype(numpy.uint32)
    # Shifted into place, exponent and mantissa are a number 2^120 too small, also where they are subnormal.
    magnitude = ((codes & 0x7F) << 20).view(numpy.float32) * numpy.float32(2.0**120)
    magnitude = numpy.where((codes & 0x7F) == 0x7F, numpy.float32("nan"), magnitude)
    return numpy.where(codes & 0x80, -magnitude, magnitude)


def written(*tensors: Any) -> None:
    """Tell autograd that a kernel has written to tensors of PyTorch: graphs that saved them are then refused. Others and
    None are passed over."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
