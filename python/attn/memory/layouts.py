# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds how a kernel can read a dense tensor in place.

Kernels read rows `[row, head, feature]` and tokens `[instance, token, head, feature]`, without gaps. Two orders in
memory fit:

    token-major  [batch, seq, heads, dim]   rows are batch x seq, with all their heads
    head-major   [batch, heads, seq, dim]   rows are batch x heads x seq, with one head each: a KV head of a sequence is an
                                            instance, and the rows of its head group see it

Keys and values may have spare capacity after the last token (a static cache, of which a part is given): it belongs to
the capacity of an instance. A tensor in neither order is read by its strides, token-major. Strides are in elements;
those of dimensions of extent 1 mean nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Major = Literal["token", "head"]


class Form(NamedTuple):
    major: Major
    capacity: int
    """Tokens from one instance to the next."""


def forms(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Form]:
    """Return the forms of a tensor with the logical dimensions (batch, seq, heads, dim); token-major first."""
    batch, seq, heads, dim = shape
    of_batch, of_seq, of_head, of_dim = strides
    if 0 in shape:
        return [Form("token", seq), Form("head", seq)]
    if of_dim != 1 and dim != 1:
        return []
    found: list[Form] = []
    if (heads == 1 or of_head == dim) and (seq == 1 or of_seq == heads * dim):
        capacity = seq if batch == 1 else of_batch // (heads * dim)
        if capacity >= seq and (batch == 1 or of_batch == capacity * heads * dim):
            found.append(Form("token", capacity))
    if seq == 1 or of_seq == dim:
        step = of_head if heads > 1 else of_batch
        capacity = seq if heads == batch == 1 else step // dim
        fits = (heads == 1 or of_head == capacity * dim) and (
            batch == 1 or of_batch == heads * capacity * dim
        )
        if capacity >= seq and fits:
            found.append(Form("head", capacity))
    return found


def merged_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides of [batch * seq, heads, dim] if rows of all sequences of (batch, seq, heads, dim) are equally far
    apart, or None."""
    batch, seq, _, _ = shape
    of_batch, of_seq, of_head, of_dim = strides
    if 0 in shape or batch == 1 or of_batch == seq * of_seq:
        return of_seq if seq > 1 or batch == 1 else of_batch, of_head, of_dim
    return (of_batch, of_head, of_dim) if seq == 1 else None


def why_unreadable(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[str, ...], itemsize: int
) -> str:
    """Return why a kernel that takes strides cannot read a tensor, with the call that fixes it; else "". Strides in
    elements; `axes` names the dimensions. The runtime checks strides, too (attn_rt/tensor/Strides.h)."""
    if 0 in shape:
        return ""
    wide = [axis for axis, n in enumerate(shape) if n > 1]
    order = f"[{', '.join(axes)}]"
    if shape[-1] > 1 and strides[-1] != 1:
        lie = sorted(wide, key=lambda axis: -strides[axis])
        if lie[-1] != len(shape) - 1:
            lies = ", ".join(axes[axis] for axis in lie)
            return f"{name}: lies in memory as [{lies}]; expected {order}, features next to each other: {name}.contiguous()"
        return f"{name}: its features are {strides[-1]} elements apart; expected next to each other: {name}.contiguous()"
    for axis in (axis for axis in wide if axis < len(shape) - 1):
        if strides[axis] == 0:
            less = (
                "; heads of a group share keys without it, so give each once" if axes[axis] == "heads" else ""
            )
            return (
                f"{name}: repeats one entry along {axes[axis]} (a stride of 0, as expand() gives){less}; expected memory of "
                f"its own for each: {name}.contiguous()"
            )
        if strides[axis] < 0:
            return f"{name}: runs backwards along {axes[axis]}; expected forwards: a copy of it"
        if strides[axis] * itemsize % 16:
            step = 16 // itemsize
            return (
                f"{name}: entries along {axes[axis]} are {strides[axis]} elements apart; expected a multiple of {step} (16 "
                f"bytes): {name}.contiguous()"
            )
    outer, tokens = ((axis in axes[:2]) and axes.index(axis) for axis in ("batch", "seq"))
    if {"batch", "seq"} <= set(axes) and {outer, tokens} <= set(wide) and strides[outer] % strides[tokens]:
        lies = ", ".join(axes[axis] for axis in sorted(range(len(shape)), key=lambda axis: -strides[axis]))
        return f"{name}: lies in memory as [{lies}]; expected {order}: {name}.contiguous()"
    return ""


def overlaps(
    start: int, nbytes: int, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> bool:
    """Whether nbytes from `start` on overlap elements of a strided tensor. Gaps between its outermost slices do not
    count, such as spare capacity after the tokens of each sequence of a cache."""
    if nbytes == 0 or 0 in shape:
        return False
    run, step, count = itemsize, 0, 1
    for stride, n in sorted(
        (abs(stride) * itemsize, n) for stride, n in zip(strides, shape, strict=True) if n > 1
    ):
        run, step, count = run + (count - 1) * step, stride, n
    if step <= run:
        run, count = run + (count - 1) * step, 1
    # The slices [address + i * step, ... + run) that end after `start` and begin before its end.
    if count == 1:
        return start < address + run and address < start + nbytes
    first = max((start - address - run) // step + 1, 0)
    last = min(-(-(start + nbytes - address) // step) - 1, count - 1)
    return first <= last


def swapped(axes: tuple) -> tuple:
    """Return axes with the second and third exchanged."""
    return (axes[0], axes[2], axes[1], *axes[3:])
