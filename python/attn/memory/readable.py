# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of tensors that kernels cannot read where they lie: dimensions that `expand` repeats, strides and addresses that
are no multiples of 16 bytes, sequences between each other's tokens ([seq, batch, heads, dim]).

Everything else is read in place (layouts.py, and arrange.py for queries)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy

from .dtypes import DTYPES
from .layouts import forms, swapped
from .tensors import contiguous, swap_axes
from .views import Strided, strided

_ALIGNED = 16  # Bytes.


def copy_unreadable(tensors: Sequence[Any], views: Sequence[tuple], layout: object) -> list[Any] | None:
    """Return q, k and v with copies of those that kernels cannot read; None if they can read all.

    tensors  of PyTorch or NumPy: [batch, seq, heads, dim], or [batch, heads, seq, dim] with layout "bhsd", or packed
             [tokens, heads, dim]
    views    their views

    Tensors of other libraries, and of shapes that attend refuses, stay as they are."""
    seen = [strided(signature) for _, signature in views]
    if not all(map(_is_copied, tensors)) or not _is_one_call(seen):
        return None
    by_head = isinstance(layout, str) and layout == "bhsd" and len(seen[0].shape) == 4
    copies = [not _is_read(each, address) for each, (address, _) in zip(seen, views, strict=True)]
    orders = [by_head] * 3
    if len(seen[0].shape) == 4:
        copies[1:], orders[1:] = _pair(seen[1:], copies[1:], by_head)
    if not any(copies):
        return None
    return [
        _copied(tensor, order != by_head) if copy else tensor
        for tensor, copy, order in zip(tensors, copies, orders, strict=True)
    ]


def copy_misaligned(tensor: Any, address: int) -> Any | None:
    """Return a dense copy of a tensor of PyTorch or NumPy at an address that kernels cannot read; None for others."""
    return _copied(tensor, False) if address % _ALIGNED and _is_copied(tensor) else None


def _is_copied(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(tensor, numpy.ndarray) or (torch is not None and isinstance(tensor, torch.Tensor))


def _is_one_call(seen: list[Strided]) -> bool:
    """Whether shapes and dtypes are plausible, and copies would lie as kernels read them."""
    q, k, v = (each.shape for each in seen)
    return (
        len(q) == len(k) == len(v)
        and len(q) in (3, 4)
        and k[:-1] == v[:-1]
        and q[-1] == k[-1]
        and all(
            each.dtype in DTYPES and each.shape[-1] * DTYPES[each.dtype][1] % _ALIGNED == 0 for each in seen
        )
    )


def _is_read(found: Strided, address: int) -> bool:
    """Whether a kernel reads a tensor's lines of features."""
    if 0 in found.shape:
        return True
    itemsize = DTYPES[found.dtype][1]  # type: ignore[index]
    *outer, of_dim = found.strides
    return (
        of_dim == 1
        and address % _ALIGNED == 0
        and all(
            stride > 0 and stride * itemsize % _ALIGNED == 0
            for stride, extent in zip(outer, found.shape, strict=False)
            if extent > 1
        )
    )


def _pair(seen: list[Strided], copies: list[bool], by_head: bool) -> tuple[list[bool], list[bool]]:
    """Return which of keys and values to copy, the fewest so that they share a layout, and whether copies have heads
    before tokens in memory: as the tensor that is not copied, or as the caller's dimensions."""
    turn = swapped if by_head else tuple
    shape = turn(seen[0].shape), turn(seen[1].shape)
    strides = turn(seen[0].strides), turn(seen[1].strides)
    for more in ((False, False), (False, True), (True, False), (True, True)):
        made = [one or other for one, other in zip(copies, more, strict=True)]
        orders = [by_head, by_head]
        for i, other in ((0, 1), (1, 0)):
            if made[i] and not made[other]:
                majors = {form.major for form in forms(shape[other], strides[other])}
                orders[i] = majors == {"head"} or (by_head and "head" in majors)
        lie = [_dense(shape[i], orders[i]) if made[i] else strides[i] for i in range(2)]
        if _share(shape, lie):
            break
    return made, orders


def _share(shape: Sequence[tuple], strides: Sequence[tuple]) -> bool:
    """Whether a kernel reads keys and values of these logical dimensions (batch, seq, heads, dim) beside each other."""
    k, v = (forms(*each) for each in zip(shape, strides, strict=True))
    if any(form in v for form in k):
        return True
    batch, seq, _, _ = shape[0]
    (k_batch, k_seq, _, _), (v_batch, v_seq, _, _) = strides
    if batch == 1:
        return True
    if seq == 1:
        return k_batch == v_batch
    return k_batch % k_seq == v_batch % v_seq == 0 and k_batch // k_seq == v_batch // v_seq


def _dense(shape: tuple[int, ...], by_head: bool) -> tuple[int, ...]:
    """Return the logical strides of a dense tensor (batch, seq, heads, dim)."""
    turned = swapped(shape) if by_head else shape
    strides = tuple(math.prod(turned[i + 1 :]) for i in range(4))
    return swapped(strides) if by_head else strides


def _copied(tensor: Any, turned: bool) -> Any:
    """Return a dense copy; `turned`: with the second and third dimension exchanged in memory."""
    copy = contiguous(tensor, turned)
    if not isinstance(tensor, numpy.ndarray) and copy.data_ptr() == tensor.data_ptr():  # Its address is odd.
        copy = copy.clone()
    elif isinstance(tensor, numpy.ndarray) and copy.ctypes.data % _ALIGNED:
        copy = _aligned(copy)
    return swap_axes(copy) if turned else copy


def _aligned(array: numpy.ndarray) -> numpy.ndarray:
    """Return a copy of a dense array at an address that kernels read."""
    memory = numpy.empty(array.nbytes + _ALIGNED, numpy.uint8)
    start = -memory.ctypes.data % _ALIGNED
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
