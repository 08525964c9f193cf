# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens in one of the formats that share a memory: kernels that change its pages, with lists of slots on the device.

The page of each list, and the index of a token in it, are kept elsewhere (page_pool.py, token_lists.py): here a token
is a slot, page * page_size + index in the page.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import PlanError
from ..memory.devices import failed, get_device, stream_number
from ..memory.views import view_of
from .operations import requantize_text
from .pages import memory_of
from .unified_pages import UnifiedPages

_TOGETHER = 64
"""The capacity of slot lists is a multiple of this many rows."""
_SECTOR = 8
"""Words before a list of slots; the first is the number of slots."""


def room_for(rows: int) -> int:
    """Return the capacity of a list of so many rows."""
    return -(-rows // _TOGETHER) * _TOGETHER


class SlotList:
    """Pairs of slots in device memory, as kernels take them: none at first, or those of a list among `SlotLists`.

    source  int32 [rows]: the slot that is read, or the index of a new row
    target  int32 [rows]: the slot that is written. A pair is skipped if both are negative
    """

    def __init__(self, rows: int, device: str, words: Any = None):
        self.rows, room = rows, room_for(rows)
        if words is None:
            words = memory_of((_SECTOR + 2 * room,), "i32", device, sys.modules.get("torch"))
            words[:] = -1
            words[0] = rows
        self._words = words
        self.source: Any = words[_SECTOR : _SECTOR + rows]
        self.target: Any = words[_SECTOR + room : _SECTOR + room + rows]

    def address(self, stream: int) -> tuple[int, int]:
        """Return its address, and its number of bytes."""
        address, signature = view_of("slots", self._words, stream, [])
        return address, 4 * int(signature[1][0])


class SlotLists:
    """Several slot lists that are written at once: `source` and `target` are int32 [count, rows]."""

    def __init__(self, count: int, rows: int, device: str):
        room = room_for(rows)
        words: Any = memory_of((count, _SECTOR + 2 * room), "i32", device, sys.modules.get("torch"))
        words[:] = -1
        words[:, 0] = rows
        self.source: Any = words[:, _SECTOR : _SECTOR + rows]
        self.target: Any = words[:, _SECTOR + room : _SECTOR + room + rows]
        self._each = [SlotList(rows, device, of_list) for of_list in words]

    def __getitem__(self, index: int) -> SlotList:
        return self._each[index]


class Copies:
    """A kernel that copies lines to a format of the memory: new rows if `source` is None, else lines of a format."""

    def __init__(self, memory: UnifiedPages, source: str | None, target: str, rows: int):
        self._memory, self._names = memory, (source, target)
        place = get_device(memory.device)
        text = requantize_text(1, *(memory.shape(name) for name in self._names))
        self._kernel = _attn.Requantizer(
            load_native(request_for(text, target=place.target, form=form_of(place)), place)[0]
        )
        self._room = 0
        self._reserve(rows)

    def _reserve(self, rows: int) -> None:
        place = get_device(self._memory.device)
        # Launches may still use the lists that grow.
        place.synchronize(stream_number(self._memory.device, None))
        self._room = room_for(rows)
        self._kernel.reserve(self._room, 1)

    def launch(self, slots: SlotList, rows: dict[str, int] | None = None, stream: object = None) -> None:
        """Launch it; `rows`: the new ones. Neither allocates nor waits, unless lists are longer than any before."""
        if room_for(slots.rows) != self._room:
            self._reserve(slots.rows)
        memory, number = self._memory, stream_number(self._memory.device, stream)
        source = memory.addresses(self._names[0]) if rows is None else rows
        target = memory.addresses(self._names[1]) | memory.status_of(self._names[1])
        try:
            self._kernel.launch(source, target, *slots.address(number), number)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None


class Precision:
    """One of the formats of a memory, `name`, with workspace for appends of `appended` and moves of `moved` rows."""

    def __init__(self, memory: UnifiedPages, name: str, *, appended: int, moved: int):
        self._memory = memory
        self.store = memory.store(name)
        self.token_bytes: int = memory.token_bytes(name)
        self.tensors = memory.tensors(name)
        """The tensors that attention reads, by their names in a batch: values and their metadata, [pages, page_size,
        ...]."""
        self.operand = tuple(self.tensors.values())
        self._append = Copies(memory, None, name, appended)
        self._prompts = Copies(memory, None, name, appended)
        self._move = Copies(memory, name, name, moved)

    def append(self, slots: SlotList, keys: Any, values: Any, stream: object = None) -> None:
        """Write new tokens, [rows, features], contiguous, and quantize them. Neither allocates nor waits for lists of
        `appended` rows."""
        self._append.launch(slots, self._memory.rows(keys, values, slots.rows), stream)

    def write(self, slots: SlotList, keys: Any, values: Any, stream: object = None) -> None:
        """Write tokens with a list of any length, as for prompts."""
        self._prompts.launch(slots, self._memory.rows(keys, values, slots.rows), stream)

    def move(self, slots: SlotList, stream: object = None) -> None:
        """Move tokens to other slots, of which none is both read and written. Neither allocates nor waits for lists of
        `moved` rows."""
        self._move.launch(slots, None, stream)
