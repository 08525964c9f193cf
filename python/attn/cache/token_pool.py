# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens of many lists in pages of one format, where a list loses tokens in its middle.

A page belongs to one list, and lists of all lengths share the pool. What attention sees of a list has no order, so the last
token moves into the place of one that goes: a list always fills its pages but the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from .._attn import Failure
from ..describe.stores import Paged
from ..errors import OutOfPages, TensorError
from ..memory.codes import dequantize, quantize
from ..memory.dtypes import short_name, torch_dtype

Lines = dict[str, Tensor]
"""Of tokens, [tokens, ...], as they are stored, by the names of a store's tensors."""


class TokenPool:
    """`pages` pages of a store, in CPU memory, and `lists` lists, empty at first.

    name   of what is stored, for messages
    store  its page size and formats
    dims   features of keys and values
    """

    def __init__(self, name: str, store: Paged, pages: int, lists: int, dims: tuple[int, int]):
        try:
            self.name, self.store, self.pages = name, store.settled(*dims), pages
        except Failure as failure:
            raise TensorError(f"{name}: {failure.message}") from None
        self.page_size = store.page_size
        self.dtype = torch_dtype(torch, short_name(store.dtype) or "bf16")
        found = store.description(1, *dims)
        self.token_bytes = found.token_bytes
        self.heads_first = found.heads_first
        self.tensors: dict[str, Tensor] = {}
        for part, dtype, extents in found.tensors:
            sizes = [{"pages": pages, "heads": 1}.get(extent, extent) for extent in extents]
            self.tensors[part] = torch.zeros(sizes, dtype=torch_dtype(torch, dtype))
        self.free = list(range(pages - 1, -1, -1))
        self.tables: list[list[int]] = [[] for _ in range(lists)]
        self.positions: list[list[int]] = [[] for _ in range(lists)]
        """Of the token in each place of a list."""
        self._places: list[dict[int, int]] = [{} for _ in range(lists)]

    # --- Lists -----------------------------------------------------------------------------------------------

    def pages_for(self, index: int, tokens: int) -> int:
        """More than the list has, for so many more tokens."""
        return -(-(len(self.positions[index]) + tokens) // self.page_size) - len(self.tables[index])

    def require(self, pages: int) -> None:
        """OutOfPages where fewer are free."""
        if pages > len(self.free):
            raise OutOfPages(
                f"{self.name}: expected at most {len(self.free)} pages, which are free of {self.pages}, asked for {pages}; "
                "nothing was changed"
            )

    def put(self, lists: Sequence[int], positions: Sequence[int], lines: Lines) -> None:
        """New tokens at the ends of lists. OutOfPages before anything has changed."""
        counts: dict[int, int] = {}
        for index in lists:
            counts[index] = counts.get(index, 0) + 1
        self.require(sum(self.pages_for(index, count) for index, count in counts.items()))
        slots = []
        for index, position in zip(lists, positions, strict=True):
            place = len(self.positions[index])
            if place == len(self.tables[index]) * self.page_size:
                self.tables[index].append(self.free.pop())
            self.positions[index].append(position)
            self._places[index][position] = place
            slots.append(self._slot(index, place))
        self._write(slots, lines)

    def holds(self, index: int, position: int) -> bool:
        """Whether the list has the token."""
        return position in self._places[index]

    def take(self, lists: Sequence[int], positions: Sequence[int]) -> Lines:
        """Tokens that go, at most one of each list; what they were."""
        places = [self._places[i].pop(position) for i, position in zip(lists, positions, strict=True)]
        slots = [self._slot(*at) for at in zip(lists, places, strict=True)]
        taken = self.read(slots)
        moved = [
            (i, place) for i, place in zip(lists, places, strict=True) if place + 1 < len(self.positions[i])
        ]
        ends = [self._slot(i, len(self.positions[i]) - 1) for i, _ in moved]
        self._write([self._slot(*at) for at in moved], self.read(ends))
        for index, place in zip(lists, places, strict=True):
            last = self.positions[index].pop()
            if place < len(self.positions[index]):
                self.positions[index][place] = last
                self._places[index][last] = place
            if len(self.positions[index]) == (len(self.tables[index]) - 1) * self.page_size:
                self.free.append(self.tables[index].pop())
        return taken

    def clear(self, lists: Sequence[int]) -> None:
        """Gives back all that lists hold."""
        for index in lists:
            self.free += reversed(self.tables[index])
            self.tables[index], self.positions[index], self._places[index] = [], [], {}

    def table(self, lists: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        """int32 [lists, most pages], and the length of each."""
        most = max([1, *(len(self.tables[index]) for index in lists)])
        table = numpy.zeros((len(lists), most), numpy.int32)
        for row, index in zip(table, lists, strict=True):
            row[: len(self.tables[index])] = self.tables[index]
        return table, numpy.array([len(self.positions[index]) for index in lists], numpy.int32)

    def slots(self, lists: Sequence[int]) -> list[int]:
        """Where the tokens of lists lie, one list behind the other."""
        return [self._slot(index, place) for index in lists for place in range(len(self.positions[index]))]

    def _slot(self, index: int, place: int) -> int:
        return self.tables[index][place // self.page_size] * self.page_size + place % self.page_size

    # --- Memory ----------------------------------------------------------------------------------------------

    def read(self, slots: Sequence[int]) -> Lines:
        """What is stored there."""
        at = self._index(slots)
        return {name: tensor[at] for name, tensor in self.tensors.items()}

    def _write(self, slots: Sequence[int], lines: Lines) -> None:
        at = self._index(slots)
        for name, tensor in self.tensors.items():
            tensor[at] = lines[name]

    def _index(self, slots: Sequence[int]) -> tuple:
        """Lines lie [pages, 1, page_size, ...] where they have metadata, else [pages, page_size, 1, ...]."""
        at = torch.tensor(slots, dtype=torch.int64)
        page, place = at // self.page_size, at % self.page_size
        return (page, 0, place) if self.heads_first else (page, place, 0)

    def encode(self, keys: Tensor, values: Tensor) -> Lines:
        """Of numbers [tokens, features]."""
        lines: Lines = {}
        for letter, numbers in (("k", keys), ("v", values)):
            code, how = self._code(letter)
            if code is None:
                lines[f"{letter}_pages"] = numbers.to(self.dtype)
                continue
            codes, meta = quantize(numbers.float().contiguous()[:, None], code, **how)
            tail = "meta" if f"{letter}_meta" in self.tensors else "scales"
            lines[f"{letter}_pages"] = codes[:, 0].view(self.tensors[f"{letter}_pages"].dtype)
            lines[f"{letter}_{tail}"] = meta[:, 0]
        return lines

    def decode(self, lines: Lines, letter: str) -> Tensor:
        """Keys ("k") or values ("v") again, float32 [tokens, features]."""
        code, how = self._code(letter)
        codes = lines[f"{letter}_pages"]
        if code is None:
            return codes.float()
        if not len(codes):
            per_byte = 8 // int(code[3:]) if code.startswith("int") else 1
            return torch.zeros(0, codes.shape[1] * per_byte)
        meta = lines.get(f"{letter}_meta", lines.get(f"{letter}_scales"))
        return dequantize(codes.contiguous()[:, None], meta.contiguous()[:, None], code, **how)[:, 0]

    def _code(self, letter: str) -> tuple[str | None, dict[str, Any]]:
        part = "key" if letter == "k" else "value"
        group, scales = (getattr(self.store, f"{part}_{name}") for name in ("group", "scales"))
        return getattr(self.store, part), {"group": group, "scales": scales}
