# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantizes and dequantizes rows of numbers on the CPU, as kernels do (attn_rt/tensor/Format.h)."""

from __future__ import annotations

import sys
from typing import Any

import numpy

from .. import _attn
from ..errors import SpecError, TensorError, expected
from .devices import failed
from .dtypes import is_dtype, numpy_name, short_name, torch_dtype
from .formats import (
    MIXED_BYTES,
    MIXED_FEATURES,
    NAMES,
    PART_OF_KEY,
    Description,
    Format,
    describe_store,
    read_format,
)
from .tensors import as_numpy, from_bfloat16_bits


def quantize(
    rows: Any,
    format: str,
    *,
    group: int | None = None,
    scales: str | None = None,
    tensor_scale: float | None = None,
) -> tuple[Any, Any]:
    """Quantize rows `[..., heads, dim]`, of NumPy or of PyTorch on the CPU; returns (values, metadata), as a store
    holds them.

    format  "int8", "int4", "int2": values uint8 [..., heads, dim * bits / 8], metadata float16 [..., heads, groups, 2],
            scale and zero point; "fp8_e4m3", "fp8_e5m2": values [..., heads, dim], metadata float32; "mxfp8_e4m3",
            "mxfp8_e5m2", "mxfp4": values uint8 [..., heads, dim] or [..., heads, dim / 2], metadata uint8 [..., heads,
            scales], a byte for each 32 features, rounded up to a multiple of four; "nvfp4": the same, an e4m3 for each 16,
            float8_e4m3fn of PyTorch
            "fp8_ds_mla": values uint8 [..., heads, 656], lines of 576 features with their scales, metadata uint8 [..., heads,
            0]
    group   of integers, as of attn.Paged
    scales  of fp8: "token", metadata [..., heads]; "head", [heads]; "tensor", [1]
    tensor_scale    of nvfp4: a factor of all numbers; None: 1, with which blocks have numbers of 0.012 to 2,688

    A paged store has metadata of each line in another order, [pages, heads, page_size, ...]. Numbers that are not
    finite are clamped, NaN becomes 0. Raises SpecError, TensorError.
    """
    numbers, named = _numbers("rows", rows), _named(format, group, scales)
    found = describe_format(named, numbers.shape[-1])
    codes, meta = quantize_rows(found, numbers, tensor_scale=_tensor_scale(named, format, tensor_scale))
    return _like(rows, codes, found.tensors[0][1]), _like(
        rows, meta, "" if named.rest else found.tensors[2][1]
    )


def dequantize(
    codes: Any,
    meta: Any,
    format: str,
    *,
    group: int | None = None,
    scales: str | None = None,
    tensor_scale: float | None = None,
) -> Any:
    """Dequantize values and metadata, as `quantize` returns them, to float32 [..., heads, dim]. Raises SpecError,
    TensorError."""
    packed, named = _bytes("codes", codes), _named(format, group, scales)
    if named.rest and packed.shape[-1] != MIXED_BYTES:
        raise expected(TensorError, "codes", f"uint8 [..., {MIXED_BYTES}]", codes, nearest=MIXED_BYTES)
    found = describe_format(named, _features(named, packed.shape[-1]))
    scale = _tensor_scale(named, format, tensor_scale)
    return _like(codes, dequantize_rows(found, packed, as_numpy("meta", meta), scale))


def _tensor_scale(named: Format, format: str, given: float | None) -> float:
    if given is None:
        return 1.0
    if not named.has_tensor_scale:
        raise expected(SpecError, "tensor_scale", f"None beside {format!r}, which has no such scale", given)
    # The reciprocal of a subnormal number is not a float32.
    if isinstance(given, bool) or not isinstance(given, (int, float, numpy.floating)):
        raise expected(SpecError, "tensor_scale", "a number", given, nearest=1.0)
    least, most = (float(getattr(numpy.finfo(numpy.float32), which)) for which in ("tiny", "max"))
    if not least <= given <= most:
        legal = f"a number that is normal in float32, from {least:.3g} to {most:.3g}"
        raise expected(SpecError, "tensor_scale", legal, given, nearest=1.0)
    return float(numpy.float32(given))


def _named(format: str, group: int | None, scales: str | None) -> Format:
    named = read_format(("format", "group", "scales"), (format, group, scales))
    if named is None:
        raise expected(SpecError, "format", f"one of {', '.join(NAMES)}", format)
    return named


def describe_format(format: Format, dim: int) -> Description:
    """Describe a packed store with keys and values in this format, and rows of so many features. SpecError."""
    try:
        if format.rest:
            return describe_store("packed", 0, False, 0, dim, dim - format.rest, format.text(), PART_OF_KEY)
        return describe_store("packed", 0, False, 0, dim, dim, format.text(), format.text())
    except _attn.Failure as failure:
        raise failed(failure, SpecError) from None


def quantize_rows(
    found: Description,
    numbers: numpy.ndarray,
    scales: numpy.ndarray | None = None,
    tensor_scale: float = 1.0,
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Quantize f32 numbers; returns (values, metadata). `scales` per tensor or head are computed if they are not given."""
    *front, dim = numbers.shape
    (_, dtype, sizes), meta = found.tensors[0], _meta_like(found, tuple(front))
    if found.key.per in ("head", "tensor"):
        if scales is None:
            scales = _find_scales(found.key, numbers)
        meta[...] = scales
    codes = numpy.empty((*front, sizes[-1]), numpy_name(dtype))
    _attn.quantize(
        found.key.text(),
        dim,
        numpy.ascontiguousarray(numbers),
        meta.view(numpy.uint8),
        codes.view(numpy.uint8),
        tensor_scale,
    )
    return codes, meta if scales is None else numpy.asarray(scales, numpy.float32)


def dequantize_rows(
    found: Description, codes: numpy.ndarray, meta: numpy.ndarray, tensor_scale: float = 1.0
) -> numpy.ndarray:
    front, dim = codes.shape[:-1], _features(found.key, codes.shape[-1])
    every = _meta_like(found, front)
    if meta.dtype != every.dtype or meta.ndim > every.ndim:
        raise expected(
            TensorError, "meta", f"{every.dtype} {list(every.shape)}", f"{meta.dtype} {list(meta.shape)}"
        )
    try:
        # Only such scales are shared by rows.
        if meta.shape != every.shape and found.key.per not in ("head", "tensor"):
            raise ValueError
        every[...] = meta
    except ValueError:
        raise TensorError(f"meta: expected {list(every.shape)}, got {list(meta.shape)}") from None
    numbers = numpy.empty((*front, dim), numpy.float32)
    codes = numpy.ascontiguousarray(codes)
    _attn.dequantize(
        found.key.text(), dim, codes.view(numpy.uint8), every.view(numpy.uint8), numbers, tensor_scale
    )
    return numbers


def _meta_like(found: Description, front: tuple[int, ...]) -> numpy.ndarray:
    """Return an array for metadata, row by row."""
    if found.key.rest:  # A line holds its scales.
        return numpy.zeros((*front, 0), numpy.uint8)
    _, dtype, dims = found.tensors[2]
    own = {"f16": dims[-2:], "u8": dims[-1:], "f8e4m3fn": dims[-1:]}.get(dtype, ())
    return numpy.zeros((*front, *own), numpy_name(dtype))


def _find_scales(format: Format, numbers: numpy.ndarray) -> numpy.ndarray:
    """Return scales per head or per tensor, computed as for one long row each."""
    heads = numbers.shape[-2] if numbers.ndim > 1 else 1
    rows = numbers.reshape(-1, heads, numbers.shape[-1]).swapaxes(0, 1).reshape(heads, -1)
    rows = rows if format.per == "head" else rows.reshape(1, -1)
    finite = numpy.where(numpy.isfinite(rows), numpy.abs(rows), 0).max(axis=1, initial=0)
    largest = numpy.repeat(finite[:, None], 16, axis=1).astype(numpy.float32)
    return quantize_rows(describe_format(Format(format.code, "token"), 16), largest)[1]


def _per_byte(format: Format) -> int:
    """Return the number of quantized values in a byte."""
    if format.code.startswith("i"):
        return 8 // int(format.code[1:])
    return 2 if format.code.startswith("f4") else 1


def _features(format: Format, line: int) -> int:
    """Return the features of a line of so many elements."""
    return MIXED_FEATURES if format.rest else line * _per_byte(format)


def _numbers(name: str, rows: Any) -> numpy.ndarray:
    array = as_numpy(name, rows)
    if is_dtype(short_name(array.dtype), "bf16"):
        array = from_bfloat16_bits(array)
    if array.dtype.kind != "f" or not array.ndim:
        raise expected(TensorError, name, "rows of numbers, [..., dim]", rows)
    return array.astype(numpy.float32)


def _bytes(name: str, codes: Any) -> numpy.ndarray:
    array = as_numpy(name, codes)
    if array.dtype != numpy.uint8 or not array.ndim:
        raise expected(TensorError, name, "quantized values, uint8 or an 8-bit float, [..., bytes]", codes)
    return array


def _like(given: Any, array: numpy.ndarray, dtype: str = "") -> Any:
    """Return a tensor of PyTorch if the given one is; 8-bit floats in their type."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, torch.Tensor):
        return array
    tensor = torch.from_numpy(array)
    return tensor.view(torch_dtype(torch, dtype)) if dtype.startswith("f8") else tensor
