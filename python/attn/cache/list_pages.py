# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists that lose tokens in their middle, in two precisions, in the pages of one PagePool.

The order of a list's tokens does not matter to attention. So the last token moves into the slot of one that goes, and a
list always fills its pages except the last. A change covers all lists of a layer at once; -1 instead of a position
stands for a list without a change. Tensors keep their shapes, and no number comes back to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..describe.stores import Unified
from .precision import Copies, Precision, SlotList
from .token_lists import HIGH_END, LOW_END, TokenLists
from .unified_pages import UnifiedPages

Lines = tuple[Tensor, ...]
"""Stored tokens, [tokens, ...], in the order of a store's tensors."""


@dataclass(frozen=True)
class Dropped:
    """Tokens that went, at most one of each list, with everything that brings them back."""

    end: int
    place: Tensor
    """int64 [lists], -1 for lists that lost no token."""
    position: Tensor
    lines: Lines


class ListPages(TokenLists):
    """`lists` lists in each of `layers` layers, empty at first.

    stores   of HIGH tokens, at the left end of a list's row of the table, and of LOW tokens
    pages    of all lists, in one memory: a page is of either precision
    tokens   that a list may ever see
    dims     features of keys and values, which come in `dtype`, "bf16" or "f16"
    """

    def __init__(
        self,
        stores: Sequence[Unified],
        *,
        pages: int,
        layers: int,
        lists: int,
        tokens: int,
        dims: tuple[int, int],
        dtype: str,
        device: str,
    ):
        page_tokens = tuple(store.page_size for store in stores)
        super().__init__(
            pages=pages,
            layers=layers,
            lists=lists,
            columns=-(-tokens // min(page_tokens)) + 4,  # Each end begins a page, and may ask for one more.
            page_tokens=page_tokens,
            ends=len(stores),
            device=device,
        )
        named = {"bf16": "bfloat16", "f16": "float16"}[dtype]
        sizes = dict(head_dim=dims[0], value_dim=dims[1], dtype=named, device=self.device)
        self.memory = UnifiedPages(*stores, pages=pages, **sizes)
        self.memory.memory[:] = 0
        names = [store.name for store in stores]
        self.ends = [Precision(self.memory, name, appended=lists, moved=lists) for name in names]
        """The precisions HIGH and LOW."""
        self._demote = Copies(self.memory, *names, lists)
        self._new, self._pairs = (SlotList(lists, self.device) for _ in range(2))
        self._new.source.copy_(torch.arange(lists))

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, which serves either precision."""
        return self.memory.page_bytes

    # --- Slots of tokens
    # -------------------------------------------------------------------------------------

    def slot(self, layer: int, end: int, place: Tensor) -> Tensor:
        """Return the slot of an index in each list: int64 [lists]; -1 for index -1."""
        return self.slots(layer, end, place[:, None])[:, 0]

    def _entry(self, layer: int, end: int, place: Tensor) -> Tensor:
        return self.entries(layer, end, place[:, None])[:, 0]

    def positions(self, layer: int, end: int, places: int) -> Tensor:
        """Return the positions of the tokens at the first indices: int64 [lists, places], -1 for an index past the end."""
        place = torch.arange(places, device=self.position.device).expand(self.lists, places)
        found = self.position.view(-1)[self.entries(layer, end, place)].long()
        return torch.where(place < self.counts[end, layer][:, None], found, -1)

    def find(self, layer: int, end: int, position: Tensor, places: int) -> Tensor:
        """Return the index of a token of each list, int64 [lists]; -1 if the list has no token of that position, or the
        position is -1. `places`: no list has more tokens."""
        match = (self.positions(layer, end, places) == position[:, None]) & (position >= 0)[:, None]
        place = torch.arange(places, device=match.device)
        return torch.where(match, place, -1).amax(1)

    def table(self, layer: int, end: int, pages: int) -> Tensor:
        """Return the first pages of each list: int32 [lists, pages]."""
        table = self.pool.table[layer]
        return (table.flip(1) if end == LOW_END else table)[:, :pages].contiguous()

    # --- Changes ---------------------------------------------------------------------------------------------

    def reserve(self, tokens: int) -> None:
        """Give each list pages for so many more tokens, at either end. Waits for the device. OutOfPages and PlanError
        change nothing."""
        torch.add(self.counts.permute(1, 2, 0), tokens, out=self.pool.tokens)
        self.pool.manage()
        self.pool.require_done()

    def prompt(self, layer: int, levels: Sequence[Tensor], keys: Tensor, values: Tensor) -> None:
        """Store the tokens of a layer that has none. `levels`: bool [lists, tokens] of HIGH and of LOW; keys, values:
        [lists, tokens, features]. Waits for the device. Raises the errors of `reserve`."""
        counts = torch.stack([level.sum(1, dtype=torch.int32) for level in levels])
        self.pool.tokens.copy_(self.counts.permute(1, 2, 0))
        self.pool.tokens[layer] = counts.T
        self.pool.manage()
        self.pool.require_done()
        self.counts[:, layer] = counts
        for end, level in enumerate(levels):
            place = torch.where(level, level.cumsum(1) - 1, -1)
            positions = torch.arange(level.shape[1], device=level.device).expand(level.shape)
            self._put_positions(self.entries(layer, end, place), positions)
            owner, position = level.nonzero(as_tuple=True)
            if len(owner):
                slots = SlotList(len(owner), self.device)
                slots.source.copy_(torch.arange(len(owner)))
                slots.target.copy_(self.slots(layer, end, place)[owner, position])
                rows = (tensor[owner, position].contiguous() for tensor in (keys, values))
                self.ends[end].write(slots, *rows)

    def put(self, layer: int, position: Tensor, keys: Tensor, values: Tensor) -> None:
        """Add a new HIGH token to each list, [lists, features]; there is a page for it."""
        place = self.counts[HIGH_END, layer].long()
        self._put_positions(self._entry(layer, HIGH_END, place), position)
        self._new.target.copy_(self.slot(layer, HIGH_END, place))
        self.ends[HIGH_END].append(self._new, keys.contiguous(), values.contiguous())
        self.counts[HIGH_END, layer] += 1

    def demote(self, layer: int, place: Tensor) -> None:
        """Copy a HIGH token of each list to LOW; `drop` removes it from HIGH. -1: none."""
        target = torch.where(place >= 0, self.counts[LOW_END, layer].long(), -1)
        entries = self._entry(layer, HIGH_END, place), self._entry(layer, LOW_END, target)
        self._put_positions(entries[1], self.position.view(-1)[entries[0]])
        self._pairs.source.copy_(self.slot(layer, HIGH_END, place))
        self._pairs.target.copy_(self.slot(layer, LOW_END, target))
        self._demote.launch(self._pairs)
        self.counts[LOW_END, layer] += place >= 0

    def drop(self, layer: int, end: int, place: Tensor) -> Dropped:
        """Remove a token of each list, or none. Its line is kept with everything that brings it back."""
        entry = self._entry(layer, end, place)
        gone = Dropped(
            end, place, self.position.view(-1)[entry], self._read(end, self.slot(layer, end, place))
        )
        last = self.counts[end, layer].long() - 1
        self._move(layer, end, torch.where(last > place, last, -1), place)
        self.counts[end, layer] -= (place >= 0).int()
        return gone

    def bring_back(self, layer: int, gone: Dropped) -> None:
        """Bring tokens back, after all later changes in the layer were undone."""
        end, place = gone.end, gone.place
        self.counts[end, layer] += place >= 0
        last = self.counts[end, layer].long() - 1
        self._move(layer, end, place, torch.where(last > place, last, -1))
        self._write(end, self.slot(layer, end, place), gone.lines)
        self._put_positions(self._entry(layer, end, place), gone.position)

    def take_back(self, layer: int, end: int, lists: Tensor) -> None:
        """Remove the last token of each list for which `lists` is True."""
        self.counts[end, layer] -= lists.int()

    def _move(self, layer: int, end: int, source: Tensor, target: Tensor) -> None:
        """Move tokens in lists that have both indices."""
        both = (source >= 0) & (target >= 0)
        source, target = (torch.where(both, place, -1) for place in (source, target))
        entries = self._entry(layer, end, source), self._entry(layer, end, target)
        self._put_positions(entries[1], self.position.view(-1)[entries[0]])
        self._pairs.source.copy_(self.slot(layer, end, source))
        self._pairs.target.copy_(self.slot(layer, end, target))
        self.ends[end].move(self._pairs)

    # --- Memory ----------------------------------------------------------------------------------------------

    def _at(self, end: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices of lines, which lie [pages, page_size, ...]."""
        size = self.pool.page_tokens[end]
        return slots // size, slots % size

    def _read(self, end: int, slots: Tensor) -> Lines:
        at = self._at(end, slots.clamp(min=0))
        return tuple(tensor[at] for tensor in self.ends[end].operand)

    def _write(self, end: int, slots: Tensor, lines: Lines) -> None:
        """Write the lines whose slot is not negative. Waits for the device."""
        some = slots >= 0
        at = self._at(end, slots[some])
        for tensor, line in zip(self.ends[end].operand, lines, strict=True):
            tensor[at] = line[some]
