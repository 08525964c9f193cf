# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the numbers of random tensors, with NaN where a kernel must not read."""

from __future__ import annotations

import numpy

from ..memory.codes import quantize_rows
from ..memory.formats import Description


def normal_numbers(
    random: numpy.random.Generator, shape: tuple[int, ...], places: list | None = None
) -> numpy.ndarray:
    """Draw standard normal numbers, f32. With `places` (indices over the dimensions before the last two, one list for
    all heads or one for each) only there, else NaN."""
    if places is None:
        return random.standard_normal(shape, numpy.float32)
    values = numpy.full((int(numpy.prod(shape[:-2])), *shape[-2:]), numpy.nan, numpy.float32)
    for h, place in enumerate(places):
        heads = slice(None) if len(places) == 1 else slice(h, h + 1)
        values[place, heads] = random.standard_normal(values[place, heads].shape, numpy.float32)
    return values.reshape(shape)


def coded_numbers(
    random: numpy.random.Generator, found: Description, numbers: numpy.ndarray, amplitude: float = 1.0
) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray | None]:
    """Quantize numbers [..., heads, dim]; return quantized values and metadata of lines [..., heads, ...], and the
    tensor's scale or None. NaN numbers give NaN results if the format has NaN. Given scales differ from head to head,
    so that a kernel that reads another head's scale is found out."""
    absent, scales = numpy.isnan(numbers[..., 0]), None
    if (
        found.key.rest
    ):  # Groups of different magnitudes, so that a kernel that reads another's scale is found out.
        group = int(found.key.per or 1)
        groups = random.uniform(0.5, 2, (*numbers.shape[:-1], -(-numbers.shape[-1] // group))).astype(
            numpy.float32
        )
        numbers = numbers * numpy.repeat(groups, group, axis=-1)[..., : numbers.shape[-1]]
        codes, meta = quantize_rows(found, numbers)
        codes[absent] = 0xFF  # A part of a NaN of each type.
        return codes, meta, None
    if found.key.has_tensor_scale:
        scale = numpy.full(1, 0.02 * amplitude * random.uniform(0.5, 2), numpy.float32)
        codes, meta = quantize_rows(found, numbers, tensor_scale=float(scale[0]))
        codes[absent], meta[absent] = 0xFF, 0xFF
        return codes, meta, scale
    if found.key.per in ("head", "tensor"):
        count = numbers.shape[-2] if found.key.per == "head" else 1
        scales = (0.02 * amplitude * random.uniform(0.5, 2, count)).astype(numpy.float32)
    codes, meta = quantize_rows(found, numbers, scales)
    codes[absent] = 0x7F  # A NaN in both 8-bit floats.
    if scales is not None:
        return codes, meta, None
    meta[absent] = numpy.nan if meta.dtype.kind == "f" else 0xFF  # A NaN in scales of blocks.
    return codes, meta, None
