# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read keys and values from the tensors of a store, token by token, with address computations and dequantization that are
independent of the library."""

from __future__ import annotations

import numpy
import torch
from oracle import Seen

FLOAT8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
INTEGER = {"int8": 8, "int4": 4, "int2": 2}
MX = {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2, "mxfp4": None, "nvfp4": None}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def plain(array):
    """Convert an array to float64; NumPy holds bfloat16 as its bits."""
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16).double()
    return torch.from_numpy(numpy.ascontiguousarray(array)).double()


def lines_of(store, tensors, part, kv_heads):
    """Return the numbers of a part, [slots, heads, dim]; heads is 1 if pages belong to no head. Scales per head of such pages
    are returned as well, unapplied."""
    name, paged = store.name, store.kind in ("paged", "unified")
    format = getattr(store, {"k": "key", "v": "value"}[part])
    codes = tensors[f"{name}.{part}{'_pages' if paged else ''}"]
    if store.kind == "unified":
        codes = codes.reshape(*codes.shape[:2], 1, -1)
    meta = tensors.get(f"{name}.{part}_meta", tensors.get(f"{name}.{part}_scales"))
    by_line = meta is not None and meta.ndim > 1
    if store.kind == "unified" and by_line:
        ends = (-1, 2) if format in INTEGER else (-1,) if format in MX else ()
        meta = meta.reshape(*codes.shape[:3], *ends)
    elif store.kind == "paged" and _has_lines(store):  # heads come before tokens in a page
        codes = codes.swapaxes(1, 2)
        if by_line:
            meta = meta.swapaxes(1, 2)
    front = codes.shape[: 1 if store.kind == "packed" else 2]
    slots = int(numpy.prod(front))
    codes = codes.reshape(slots, *codes.shape[len(front) :])
    if format is None:
        return plain(codes)
    if by_line:
        meta = numpy.ascontiguousarray(meta).reshape(slots, *meta.shape[len(front) :])
    if format in FLOAT8:
        numbers = (
            torch.from_numpy(numpy.ascontiguousarray(codes).view(numpy.uint8)).view(FLOAT8[format]).double()
        )
        scales = torch.from_numpy(numpy.ascontiguousarray(meta)).double()
        if not by_line and len(scales) == kv_heads > 1 and store.kind == "unified":
            return numbers, scales  # the head of the list decides the scale
        return numbers * (scales[..., None] if by_line else scales[:, None] if len(scales) > 1 else scales)
    if format in MX:
        numbers = blocks(format, numpy.ascontiguousarray(codes).view(numpy.uint8), meta)
        scale = tensors.get(f"{name}.{part}_tensor_scale", numpy.ones(1, numpy.float32))
        return numbers * torch.from_numpy(scale).double()
    bits = INTEGER[format]
    packed = numpy.ascontiguousarray(codes).view(numpy.uint8)
    each = numpy.stack([packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1)
    numbers = torch.from_numpy(each.reshape(*packed.shape[:-1], -1).astype(numpy.float64))
    meta = torch.from_numpy(meta.astype(numpy.float64)).repeat_interleave(
        numbers.shape[-1] // meta.shape[-2], -2
    )
    return numbers * meta[..., 0] + meta[..., 1]


def blocks(format, codes, powers):
    """Dequantize OCP's Microscaling formats, and NVFP4 without the tensor's scale."""
    if MX[format] is None:
        nibbles = torch.from_numpy(numpy.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1))
        numbers = E2M1[(nibbles & 7).long()] * torch.where(nibbles > 7, -1.0, 1.0)
    else:
        numbers = torch.from_numpy(codes).view(MX[format]).double()
    if format == "nvfp4":
        scales = torch.from_numpy(powers.view(numpy.uint8) & 0x7F).view(torch.float8_e4m3fn).double()
        return numbers * scales[..., : numbers.shape[-1] // 16].repeat_interleave(16, -1)
    scales = torch.exp2(torch.from_numpy(powers.astype(numpy.float64)) - 127)
    scales[torch.from_numpy(powers == 255)] = torch.nan
    return numbers * scales[..., : numbers.shape[-1] // 32].repeat_interleave(32, -1)


def _has_lines(store):
    """Return whether a part has metadata by line."""
    return any(
        format in INTEGER
        or format in MX
        or (format in FLOAT8 and getattr(store, f"{part}_scales") in (None, "token"))
        for part, format in (("key", store.key), ("value", store.value))
    )


def slots_of(store, tensors, instance, head, length):
    at = numpy.arange(length)
    name = store.name
    if store.kind == "dense":
        return instance * tensors[f"{name}.k"].shape[1] + at
    if store.kind == "packed":
        return tensors[f"{name}.start"][instance] + at
    table = tensors[f"{name}.block_table"][instance]
    table = table[head] if store.ragged else table
    return table[at // store.page_size].astype(numpy.int64) * store.page_size + at % store.page_size


def read_operand(store, tensors, kv_heads, see, number, offset):
    """Return for each KV head: keys and values [tokens, dim], instance after instance, a list of Seen, and the slots of each
    instance. `offset`: tokens of the operands before, per head."""
    lines = {part: lines_of(store, tensors, part, kv_heads) for part in "kv"}
    lengths, pos0 = tensors[f"{store.name}.lengths"], tensors[f"{store.name}.pos0"]
    rows = tensors.get(f"{store.name}.rows")
    starts = tensors["q_start"]
    found = []
    for head in range(kv_heads):
        keys, values, seen, places, at = [], [], [], [], offset[head]
        for i in range(len(lengths)):
            length = int(lengths[i][head] if store.ragged else lengths[i])
            slots = slots_of(store, tensors, i, head, length)
            places.append(slots)
            for part, into in (("k", keys), ("v", values)):
                of_part, scale = lines[part], 1.0
                if isinstance(of_part, tuple):
                    of_part, scales = of_part
                    scale = scales[head]
                one = of_part[torch.from_numpy(slots)]
                into.append((one[:, 0] if store.kind == "unified" else one[:, head]) * scale)
            span = tuple(int(n) for n in (rows[i] if rows is not None else starts[i : i + 2]))
            token = torch.arange(at, at + length)
            seen.append(Seen(token, int(pos0[i]) + torch.arange(length), span, see, number))
            at += length
        found.append((torch.cat(keys), torch.cat(values), seen, places))
    return found
