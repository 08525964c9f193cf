# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slots of the tokens of many lists, in pages of one PagePool, and the entries of their positions and scores.

A list has indices 0, 1, ... at either end of its row of the page table, its HIGH tokens at the left and its LOW ones at
the right. An index is in a page. For keys and values it is slot page * page_size + index in the page, which kernels
take. For positions and scores it is entry page * places + index in the page, since pages of both ends have `places`
entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import Uncopied
from .page_pool import PagePool

HIGH_END, LOW_END = 0, 1


class TokenLists(Uncopied):
    """`lists` lists in each of `layers` layers, empty at first, of `columns` pages at both ends together. `ends`: 1
    without LOW tokens, or 2. Other arguments are PagePool's."""

    _instead = "its lists hold the pages of its device; make another"

    def __init__(
        self,
        *,
        pages: int,
        layers: int,
        lists: int,
        columns: int,
        page_tokens: Sequence[int],
        ends: int,
        device: object,
        checked: bool = False,
    ):
        self.layers, self.lists = layers, lists
        sizes = dict(pages=pages, requests=layers, lists=lists, columns=columns)
        self.pool = PagePool(**sizes, page_tokens=page_tokens, device=device, checked=checked)
        """Rows of its table are [layers, lists]."""
        self.device = self.pool.device
        self.counts = self._zeros(ends, layers, lists)
        """Tokens of each list that are HIGH, and LOW: int32 [ends, layers, lists]. To be read."""
        self._places = max(self.pool.page_tokens)
        # One page more than the pool has: lists without a change write there.
        self.position = self._zeros(pages + 1, self._places)
        """The position of the token at an index of a page: int32 [pages + 1, places]."""

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.pool.tokens.device)

    def _held(self, rows: int | tuple, end: int, place: Tensor) -> Tensor:
        """Return the page that contains an index: int64. `rows`: a layer, or another part of the table, [..., columns];
        `place`: [..., places], with as many dimensions."""
        column = place // self.pool.page_tokens[end]
        column = self.pool.columns - 1 - column if end == LOW_END else column
        return self.pool.table[rows].gather(-1, column.clamp(0, self.pool.columns - 1).long()).long()

    def slots(self, rows: int | tuple, end: int, place: Tensor) -> Tensor:
        """Return slots of keys and values, int64; -1 for a negative index."""
        page = self.pool.page_tokens[end]
        return torch.where(place >= 0, self._held(rows, end, place) * page + place % page, -1)

    def entries(self, rows: int | tuple, end: int, place: Tensor) -> Tensor:
        """Return entries of positions and scores, int64; for a negative index an entry that is never read."""
        page = self.pool.page_tokens[end]
        found = self._held(rows, end, place) * self._places + place % page
        return torch.where(place >= 0, found, self.pool.pages * self._places)

    def _put_positions(self, entries: Tensor, positions: Tensor) -> None:
        self.position.view(-1).scatter_(0, entries.flatten(), positions.int().flatten())
