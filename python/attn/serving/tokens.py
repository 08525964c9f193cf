# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step's new tokens in an engine's pages: one launch writes them, and may normalize, rotate and quantize them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..cache.appender import NewTokens, check_positions, device_of, read_positions, room_for, words_of
from ..cache.operations import Shape
from ..cache.rope import Norm, Rope
from ..errors import CompileError, TensorError, expected
from ..memory.devices import get_device, stream_number
from ..memory.views import needs_gradient

_HEADER = 8  # In words: a list begins with the number of its rows.
_LAST = (1 << 31) - 1  # No pool has this slot.


class Tokens:
    """The slots and positions of a step's new tokens, for the writes of all its layers, which share one list.

    slots      int32 or int64 [tokens]: page * page_size + offset; keys and values of a negative slot are not written
    positions  int32 or int64 [tokens or more], needed beside a Rope

    Nothing waits for slots on a GPU. Raises TensorError."""

    def __init__(self, slots: Tensor, positions: Tensor | None = None):
        if not isinstance(slots, Tensor) or slots.ndim != 1 or slots.dtype not in (torch.int32, torch.int64):
            raise expected(TensorError, "slots", "int32 or int64 [tokens]", slots)
        self.slots = slots
        self.device = device_of(slots)
        self.count = len(slots)
        # On the host device, blocks without rows cost as much as others.
        self.room = room_for(self.count, 1) if self.device == "host" else room_for(self.count)
        self._last: int | None = None
        self._words: dict[int, Tensor] = {}
        self._positions: dict[int, Tensor] = {}
        """Lists and positions by the graph that made them: its replays read other numbers at the same addresses."""
        self._given: Tensor | None = None
        self._ends: tuple[int, int] | None = None
        if positions is not None:
            self._given = positions
            found = self._at_positions()
            if self.device == "host" and self.count:
                self._ends = int(found.min()), int(found.max())

    def __len__(self) -> int:
        return self.count

    def _graph(self) -> int:
        """Return the number of the CUDA graph that the current stream is captured into; 0 if there is none."""
        if not (self.slots.is_cuda and torch.cuda.is_current_stream_capturing()):
            return 0
        return get_device(self.device).capture(stream_number(self.device, None))

    @property
    def words(self) -> Tensor:
        """The slots as a list that kernels take."""
        graph = self._graph()
        if graph not in self._words:
            words = torch.empty(words_of(self.room), dtype=torch.int32, device=self.slots.device)
            words[:_HEADER] = self.count
            slots = self.slots.clamp(-1, _LAST) if self.slots.dtype == torch.int64 else self.slots
            words[_HEADER : _HEADER + self.count] = slots
            self._words[graph] = words
        return self._words[graph]

    def _at_positions(self) -> Tensor:
        graph = self._graph()
        if graph not in self._positions:
            self._positions[graph] = read_positions(None, self._given, self.count, self.device)
        return self._positions[graph]

    def check_device(self, device: torch.device) -> None:
        """Refuse pages on another device than the slots."""
        if self.slots.device != device:
            raise expected(TensorError, "slots", f"memory of {device}", self.slots.device)

    def check_slots(self, pages: int, page_size: int) -> None:
        """Refuse slots past a pool in a CPU's memory."""
        if self.device != "host":
            return
        if self._last is None:
            self._last = int(self.slots.max()) if self.count else -1
        if self._last >= pages * page_size:
            legal = f"below {pages * page_size} ({pages} pages of {page_size} tokens)"
            raise expected(TensorError, "slots", legal, self._last, nearest=pages * page_size - 1)

    def check_positions(self, rope: Rope) -> Tensor:
        """Return the positions, int32 [tokens]. Refuse a rope without them, and on a CPU those past its tables."""
        if self._given is None:
            raise expected(TensorError, "slots", "attn.serving.Tokens(slots, positions) beside a rope", None)
        if self._ends is not None:
            check_positions(rope, *self._ends)
        return self._at_positions()


def tokens_of(slots: Tensor | Tokens) -> Tokens:
    """Return slots as the tokens of a step."""
    return slots if isinstance(slots, Tokens) else Tokens(slots)


def write_rows(
    pages: dict[str, int],
    shape: Shape,
    heads: int,
    tokens: Tokens,
    k: Tensor,
    v: Tensor | None,
    q: Tensor | None,
    out: Tensor | None,
    rope: Rope | None,
    norm: Norm | None,
) -> Any:
    """Write tokens to pages, given by addresses and strides; return prepared queries, or None. Keys and values whose heads
    are no rows are copied first. Tensors that require a gradient are a TensorError."""
    for name, tensor in (("k", k), ("v", v), ("q", q)):
        if tensor is not None and needs_gradient(tensor):
            raise TensorError(
                f"{name}: requires a gradient, which pages do not pass on; call under torch.no_grad()"
            )
    tokens.check_slots(pages["pages"], pages["page_tokens"])
    number = stream_number(shape.device, None)
    k, v = (_readable(rows) for rows in (k, v))
    new = NewTokens(heads, shape, tokens.count, k, v, q, out, rope, norm, number)
    if rope is not None:
        new.use_positions(tokens.check_positions(rope))
    if not tokens.count:
        return new.out
    new.use_list(tokens.words)
    try:
        return new.write(pages, tokens.room)
    except CompileError as error:
        if rope is not None or norm is not None:
            raise
        features = shape.key_dim if v is None else f"{shape.key_dim} and {shape.value_dim}"
        raise TensorError(f"k: no kernel writes {heads} heads of {features} features ({error})") from None


def _readable(rows: Tensor | None) -> Tensor | None:
    """Return rows whose heads lie side by side, at multiples of 16 bytes: these, or a copy."""
    if rows is None or rows.ndim != 3:
        return rows
    _, heads, dim = rows.shape
    token, head, feature = rows.stride()
    lies = feature == 1 and (heads == 1 or head == dim) and not rows.data_ptr() % 16
    apart = len(rows) < 2 or (token >= heads * dim and not token * rows.element_size() % 16)
    return rows if lies and apart else rows.clone(memory_format=torch.contiguous_format)


def strides_of(name: str, view: Tensor, what: str) -> dict[str, int]:
    """Return the address and the strides of [pages, page_size, heads, ...], whose last axes are a line in one piece."""
    size = view.element_size()
    page, token, head = (stride * size for stride in view.stride()[:3])
    if view.data_ptr() % 16 or view.stride(3) != 1:
        raise expected(TensorError, what, "contiguous features, at a multiple of 16 bytes", view)
    return {
        name: view.data_ptr(),
        f"{name}_page_stride": page,
        f"{name}_token_stride": token,
        f"{name}_head_stride": head,
    }
