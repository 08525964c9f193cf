# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens of many lists in one format: the pages that hold them, and the kernels that change these.

Every page is one list's, so to kernels a page has one KV head. Which list has which page, and in what place of it a token
lies, is said elsewhere (page_pool.py, mixed.py): here a token is a slot, page * page_size + place in the page.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import _attn
from ..describe.stores import Paged
from ..errors import PlanError
from ..memory.devices import failed, get_device, stream_number
from ..memory.views import Binding, check, view_of
from .operations import Shape
from .pages import Run, memory_of

_TOGETHER = 64
"""Rows that lists of slots have room for come in multiples of this."""
_SECTOR = 8
"""Words in front of a list of slots, of which the first says how many there are."""


def room_for(rows: int) -> int:
    """Rows that a list of so many has room for."""
    return -(-rows // _TOGETHER) * _TOGETHER


class SlotList:
    """Slots in device memory, as kernels take them that read and write pages: none at first.

    slots   int32 [rows]: where rows are written, or read; negative ones are skipped
    target  int32 [rows]: where these are written; None of a list of one kind
    """

    def __init__(self, rows: int, device: str, *, pairs: bool):
        room, torch = room_for(rows), sys.modules.get("torch")
        self._words: Any = memory_of((_SECTOR + room * (2 if pairs else 1),), "i32", device, torch)
        self._words[:] = -1
        self._words[0] = rows
        self.slots: Any = self._words[_SECTOR : _SECTOR + rows]
        self.target: Any = self._words[_SECTOR + room : _SECTOR + room + rows] if pairs else None

    def address(self, stream: int) -> tuple[int, int]:
        """Where it lies, and how many bytes it has."""
        address, signature = view_of("slots", self._words, stream, [])
        return address, 4 * int(signature[1][0])


class Precision:
    """`pages` pages of a store on a device, with room for appends of `appended` and moves of `moved` rows. `dims`: features of
    keys and values, which come in `dtype`, "bf16" or "f16"."""

    def __init__(
        self,
        store: Paged,
        pages: int,
        dims: tuple[int, int],
        dtype: str,
        device: str,
        *,
        appended: int,
        moved: int,
    ):
        found = store.description(1, *dims)
        self.store, self.device, self.dtype, self.dims = store, device, dtype, dims
        self.token_bytes: int = found.token_bytes
        shape = Shape(pages, store.page_size, *dims, dtype, device, found.key, found.value)
        self.run = Run(0, 1, 1, shape, sys.modules.get("torch"))
        """Its memory: one layer of one head."""
        for tensor in self.run.tensors.values():
            tensor[:] = 0  # type: ignore[index]
        self.operand = tuple(tensor[0] for tensor in self.run.tensors.values())  # type: ignore[index]
        """What attention reads: codes and their metadata."""
        self._kernels, self._room = self.run.mover(0).kernels, (0, room_for(moved))
        self._reserve(appended)

    def _reserve(self, appended: int) -> None:
        self._room = room_for(appended), self._room[1]
        get_device(self.device).synchronize(stream_number(self.device, None))  # what grows may be in use
        named = dict(self.run.pages(), new_tokens=self._room[0], copied_tokens=self._room[1])
        self._kernels.reserve(**named)

    @property
    def page_bytes(self) -> int:
        """Of codes and metadata."""
        return self.token_bytes * self.store.page_size

    def append(self, slots: SlotList, keys: Any, values: Any, stream: object = None) -> None:
        """New tokens, [rows, 1, features]; codes are made of them. Neither allocates nor waits, but where these are more than
        there is room for."""
        if len(slots.slots) > self._room[0]:
            self._reserve(len(slots.slots))
        number, keep = stream_number(self.device, stream), []
        views = []
        for name, tensor, features in (("k", keys, self.dims[0]), ("v", values, self.dims[1])):
            address, signature = view_of(name, tensor, number, keep)
            check(Binding(name, self.dtype, (len(slots.slots), 1, features)), signature, {}, self.device)
            views.append(address)
        named = dict(k=views[0], v=views[1], rows=len(slots.slots), layer=0, stream=number)
        self._launch(self._kernels.append, *slots.address(number), **named)

    def move(self, slots: SlotList, stream: object = None) -> None:
        """Tokens to other slots, of which none is read and written. Neither allocates nor waits."""
        number = stream_number(self.device, stream)
        self._launch(self._kernels.move, *slots.address(number), number)

    @staticmethod
    def _launch(call: Any, *arguments: object, **named: object) -> None:
        try:
            call(*arguments, **named)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
