# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens in one of the formats that share a memory: kernels that change its pages, of slots that lie on the device.

Which list has which page, and in what place of it a token lies, is said elsewhere (page_pool.py, token_lists.py): here a token
is a slot, page * page_size + place in the page.
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
"""Rows that lists of slots have room for come in multiples of this."""
_SECTOR = 8
"""Words in front of a list of slots, of which the first says how many there are."""


def room_for(rows: int) -> int:
    """Rows that a list of so many has room for."""
    return -(-rows // _TOGETHER) * _TOGETHER


class SlotList:
    """Pairs of slots in device memory, as kernels take them: none at first, or those of a list among `SlotLists`.

    source  int32 [rows]: what is read, slots or numbers of new rows
    target  int32 [rows]: where it goes. Skipped where both are negative
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
        """Where it lies, and how many bytes it has."""
        address, signature = view_of("slots", self._words, stream, [])
        return address, 4 * int(signature[1][0])


class SlotLists:
    """So many of them, that are written at once: `source` and `target` are int32 [count, rows]."""

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
    """A kernel that copies lines to a format of the memory: new rows where `source` is None, else those of a format."""

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
        place.synchronize(stream_number(self._memory.device, None))  # lists that grow may be in use
        self._room = room_for(rows)
        self._kernel.reserve(self._room, 1)

    def launch(self, slots: SlotList, rows: dict[str, int] | None = None, stream: object = None) -> None:
        """`rows`: the new ones. Neither allocates nor waits, but where lists are longer than any before."""
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
    """One of the formats of a memory, `name`, with room for appends of `appended` and moves of `moved` rows."""

    def __init__(self, memory: UnifiedPages, name: str, *, appended: int, moved: int):
        self._memory = memory
        self.store = memory.store(name)
        self.token_bytes: int = memory.token_bytes(name)
        self.tensors = memory.tensors(name)
        """What attention reads, by its names in a batch: codes and their metadata, [pages, page_size, ...]."""
        self.operand = tuple(self.tensors.values())
        self._append = Copies(memory, None, name, appended)
        self._prompts = Copies(memory, None, name, appended)
        self._move = Copies(memory, name, name, moved)

    def append(self, slots: SlotList, keys: Any, values: Any, stream: object = None) -> None:
        """New tokens, [rows, features], contiguous; codes are made of them. Neither allocates nor waits, where lists are as
        long as said."""
        self._append.launch(slots, self._memory.rows(keys, values, slots.rows), stream)

    def write(self, slots: SlotList, keys: Any, values: Any, stream: object = None) -> None:
        """The same of lists of any length, as of prompts."""
        self._prompts.launch(slots, self._memory.rows(keys, values, slots.rows), stream)

    def move(self, slots: SlotList, stream: object = None) -> None:
        """Tokens to other slots, of which none is read and written. Neither allocates nor waits, as `append`."""
        self._move.launch(slots, None, stream)
