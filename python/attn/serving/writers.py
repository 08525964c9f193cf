# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that quantize new tokens and write them into an engine's pages, at slots on the device."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import _attn
from ..cache.operations import Shape, requantize_text
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import PlanError
from ..memory import devices
from ..memory.devices import failed, get_device, stream_number
from ..memory.formats import Format
from .formats import Packing

_HEADER = 8  # In words: a list begins with the number of its pairs.
_LEAST = 64  # Pairs in the shortest list.


class Slots:
    """The slots of a step's tokens, in lists on the device as a kernel takes them."""

    def __init__(self, slots: Tensor, packing: Packing, apart: int, pages: int):
        heads, page_size = packing.heads, packing.page_size
        most = pages * page_size
        self.tokens = len(slots)
        self.pairs = self.tokens * heads
        self.room = max(_LEAST, 1 << (self.pairs - 1).bit_length())
        """Pairs that a list has room for: a power of two, so that few kernels serve all steps."""
        head = torch.arange(heads, dtype=torch.int32, device=slots.device)
        kept = (slots >= 0) & (slots < most)
        page, offset = slots // page_size, slots % page_size
        block = (page * (apart * page_size) + offset).to(torch.int32)[:, None] + head * page_size
        self._kept = kept[:, None]
        self._written = torch.where(self._kept, block, -1)
        self._head = head
        self._lists: dict[int, Tensor] = {}

    def list(self, apart: int) -> Tensor:
        """Return the list for rows of heads, of which a token's are `apart` rows after those of the token before:
        int32 words."""
        found = self._lists.get(apart)
        if found is None:
            device = self._head.device
            rows = torch.arange(0, self.tokens * apart, apart, dtype=torch.int32, device=device)
            found = torch.empty(_HEADER + 2 * self.room, dtype=torch.int32, device=device)
            found[:_HEADER] = self.pairs
            read, written = found[_HEADER:].view(2, self.room)[:, : self.pairs]
            read.view(self.tokens, -1)[:] = torch.where(self._kept, rows[:, None] + self._head, -1)
            written.view(self.tokens, -1)[:] = self._written
            self._lists[apart] = found
        return found


class Writer:
    """The kernel for pages of one shape on one device. May be used from several threads."""

    def __init__(self, source: Shape, target: Shape, device: str):
        place = get_device(device)
        self._device, self._source = device, source
        request = request_for(requantize_text(1, source, target), target=place.target, form=form_of(place))
        self._code = load_native(request, place)[0]
        self._kernels: dict[int, Any] = {}
        """Kernels by the length of their lists."""
        self._status = place.allocate(16, "status")
        self._status.fill(0)

    def _kernel(self, room: int) -> Any:
        found = self._kernels.get(room)
        if found is None:
            found = _attn.Requantizer(self._code)
            found.reserve(room, 1)
            found = self._kernels.setdefault(room, found)
        return found

    def write(self, target: dict[str, int], k: Tensor, v: Tensor, slots: Slots) -> None:
        """Write tokens [tokens, heads, dim] to pages at addresses."""
        apart, k, v = _rows(k, v)
        found = slots.list(apart)
        count = (slots.tokens - 1) * apart + k.shape[1]
        rows = {"pages": count, "page_tokens": 1, "k": k.data_ptr(), "v": v.data_ptr()}
        target = target | {"status": self._status.address}
        number = stream_number(self._device, None)
        try:
            self._kernel(slots.room).launch(rows, target, found.data_ptr(), 4 * len(found), number)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None


def _rows(k: Tensor, v: Tensor) -> tuple[int, Tensor, Tensor]:
    """Return keys and values as rows of heads in equal places, and the rows from a token to the next: a slice of a fused
    projection is read where it lies."""
    apart = {_apart(rows) for rows in (k, v)}
    if len(apart) == 1 and (found := apart.pop()):
        return found, k, v
    return k.shape[1], k.contiguous(), v.contiguous()


def _apart(rows: Tensor) -> int:
    """Return the rows of heads from a token to the next; 0 if heads are no such rows."""
    _, heads, dim = rows.shape
    tokens, head, feature = rows.stride()
    dense = (dim == 1 or feature == 1) and (heads == 1 or head == dim) and not rows.data_ptr() % 16
    if len(rows) == 1:
        return heads if dense else 0
    return tokens // dim if dense and tokens % dim == 0 and tokens >= heads * dim else 0


@functools.lru_cache(maxsize=64)
def _writer(source: Shape, target: Shape, device: str, generation: int) -> Writer:
    return Writer(source, target, device)


def writer_of(packing: Packing, device: torch.device) -> Writer:
    """Return the kernel that writes a layer's tokens, compiled once."""
    name = "host" if device.type == "cpu" else str(device)
    dtype = {torch.float16: "f16", torch.bfloat16: "bf16"}[packing.dtype]
    sizes = packing.dim, packing.dim, dtype, name
    found = packing.description()
    source = Shape(0, 1, *sizes, Format(dtype), Format(dtype))
    target = Shape(0, packing.page_size, *sizes, found.key, found.value, "unified")
    return _writer(source, target, name, devices.generation)
