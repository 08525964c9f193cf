# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches as pages of a kernel: flash-attn's caches of sequences, and its pages of any number of tokens, are read where
they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from ..memory.page_sizes import page_of

_LARGEST = (
    256  # Tokens of pages that sequences are cut into: a power of two, so that few kernels serve all lengths.
)


@dataclass(frozen=True)
class CachePages:
    """Keys and values as kernels' pages `[pages, size, heads, dim]`. An entry, a sequence's part or one of the caller's
    pages, has `room` tokens, and begins `apart` kernels' pages after the entry before it."""

    k: Tensor
    v: Tensor
    size: int
    apart: int
    room: int

    def of_entries(self, table: Any) -> Any:
        """Return the block table of kernels' pages for a table of entries [sequences, entries], an array or a tensor of
        int32."""
        inside = self.room // self.size
        if self.apart == inside == 1:
            return table
        if isinstance(table, numpy.ndarray):
            steps = numpy.arange(inside, dtype=numpy.int32)
            return (table[:, :, None] * numpy.int32(self.apart) + steps).reshape(len(table), -1)
        steps = torch.arange(inside, dtype=torch.int32, device=table.device)
        return (table[:, :, None] * self.apart + steps).flatten(1)

    def shares_memory(self, k: Tensor, v: Tensor) -> bool:
        """Whether pages are read where these caches lie."""
        return self.k.data_ptr() == k.data_ptr() and self.v.data_ptr() == v.data_ptr()


def pages_of_cache(k: Tensor, v: Tensor, aligned: int | None) -> CachePages:
    """Return the pages of caches `[entries, tokens, heads, dim]`.

    aligned  a number that the first token of each sequence in its entry is a multiple of, 0 for the entry's own first;
             None if entries are pages, which stay whole if kernels have such pages

    Caches are copied if kernels cannot read them in place: heads before tokens, odd strides and addresses."""
    found = _in_place(k, v, aligned)
    if found is None:
        k, v = (each.clone(memory_format=torch.contiguous_format) for each in (k, v))
        found = _in_place(k, v, aligned)
    assert found is not None
    return found


def _in_place(k: Tensor, v: Tensor, aligned: int | None) -> CachePages | None:
    entries, room = k.shape[:2]
    apart = [_tokens_apart(each) for each in (k, v)]
    if None in apart or apart[0] != apart[1]:
        return None
    step = int(apart[0] or 0)
    size = math.gcd(room, step, aligned or 0)
    size = page_of(size) if aligned is None else min(size & -size, _LARGEST)
    count = ((entries - 1) * step + room) // size
    views = []
    for each in (k, v):
        of_entry, of_token, of_head, _ = each.stride()
        of_token = of_token if room > 1 else of_entry // step
        views.append(each.as_strided((count, size, *each.shape[2:]), (size * of_token, of_token, of_head, 1)))
    return CachePages(*views, size, step // size, room)


def _tokens_apart(cache: Tensor) -> int | None:
    """Return the tokens from an entry to the next, if each token's heads lie together where a kernel can read them."""
    entries, room, heads, dim = cache.shape
    of_entry, of_token, of_head, of_dim = cache.stride()
    if room == 1:  # Its stride means nothing.
        of_token = of_entry if entries > 1 else heads * dim
    if entries == 1:
        of_entry = room * of_token
    of_head = of_head if heads > 1 else dim
    step = 16 // cache.element_size()
    if (
        (dim > 1 and of_dim != 1)
        or cache.data_ptr() % 16
        or of_token % step
        or of_head % step
        or of_head < dim
        or of_token < (heads - 1) * of_head + dim
        or of_entry % of_token
        or of_entry < room * of_token
    ):
        return None
    return of_entry // of_token
