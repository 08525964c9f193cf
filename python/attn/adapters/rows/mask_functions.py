# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates the mask functions of Transformers into attn's descriptions.

A mask function becomes a Visibility, or in compiled code its text. A function of Transformers is recognized by its
code, not by its name. (Source: transformers.masking_utils.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers.masking_utils as masking
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...describe.visibility import Visibility, all_tokens, causal, chunk, window
from .visible_rows import Rows


@dataclass(frozen=True)
class Local:
    """A mask function that is called with positions in a packed sequence, `positions [batch, rows]`."""

    function: Callable
    positions: Tensor


def _code(made: Callable) -> object:
    return made.__code__


_WINDOW = _code(masking.sliding_window_overlay(1))
_BOTH_WAYS = _code(masking.sliding_window_bidirectional_overlay(1))
_CHUNK = _code(masking.chunked_overlay(1, torch.zeros(1, dtype=torch.int64)))
_PACKED = _code(masking.packed_sequence_mask_function(torch.zeros(1, 1)))
_BLOCKS = _code(masking.blockwise_overlay(torch.zeros(1, 1)))
_AND = _code(masking.and_masks())
_OR = _code(masking.or_masks())
# Before Transformers 5.16 functions were called with positions in a batch's row, however sequences were
# packed there.
_remap = getattr(masking, "remap_positions_for_packed_sequence", None)
_LOCAL = object() if _remap is None else _code(_remap(masking.causal_mask_function, torch.zeros(1, 1)))


_OF_DISTANCES = (masking.causal_mask_function, masking.bidirectional_mask_function)


def _closed_over(function: Callable) -> dict[str, object]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _conjunction(function: Callable) -> list[Callable | Local]:
    """Return the functions that must all show a key."""
    code = getattr(function, "__code__", None)
    if code is _AND:
        return [part for joined in _closed_over(function)["mask_functions"] for part in _conjunction(joined)]
    if code is not _LOCAL:
        return [function]
    held = _closed_over(function)
    # Positions of a packed sequence are consecutive, like the indices of its keys: distances are the same in
    # both.
    return [
        part
        if part in _OF_DISTANCES or getattr(part, "__code__", None) is _WINDOW
        else Local(part, held["position_ids"])
        for part in _conjunction(held["mask_function"])
    ]


def see_of(function: Callable, mask: Tensor | None) -> Visibility | None:
    """Return the visibility of a function that needs no more than spans, whose positions count from the first token
    that the padding `mask` shows; None for other functions."""
    parts = _conjunction(function)
    codes = [getattr(part, "__code__", None) for part in parts]
    ends = masking.causal_mask_function in parts
    whole = masking.bidirectional_mask_function in parts
    if len(parts) == 1 and (ends or whole):
        return causal() if ends else all_tokens()
    if len(parts) != 2 or not (ends or whole):
        return None
    held = _closed_over(parts[0]) if codes[0] in (_WINDOW, _BOTH_WAYS, _CHUNK) else {}
    if codes[0] is _WINDOW and ends:
        return window(held["sliding_window"])
    if codes[0] is _BOTH_WAYS:
        return window(held["sliding_window"] + 1) if ends else window(*[held["sliding_window"]] * 2)
    if codes[0] is _CHUNK and ends and _are_padding(held["left_padding"], mask):
        return chunk(held["chunk_size"]) & causal()
    return None


def _are_padding(counts: Tensor, mask: Tensor | None) -> bool:
    """Whether these counts are the hidden positions of each sequence before its first token."""
    if mask is None:
        return not counts.any()
    shown = mask.bool()
    return bool((~shown.any(1) | (shown.int().argmax(1) == counts)).all())


def describe(function: Callable, rows: Rows, first_key: int, first_row: int) -> Rows | None:
    """Return what rows see by known functions; None if one is unknown."""
    parts = _conjunction(function)
    codes = [getattr(part, "__code__", None) for part in parts]
    for part, code in sorted(zip(parts, codes, strict=True), key=lambda pair: pair[1] is not _OR):
        if code is _OR:
            base, *others = _closed_over(part)["mask_functions"]
            if len(others) != 1 or getattr(others[0], "__code__", None) is not _BLOCKS:
                return None
            blocks = _closed_over(others[0])["block_sequence_ids"].cpu().numpy()
            rows = describe(base, rows, first_key, first_row)
            rows = None if rows is None else rows.with_blocks(blocks[:, first_key:])
        elif part is masking.causal_mask_function:
            rows = rows.seeing(causal())
        elif part is masking.bidirectional_mask_function:
            pass
        elif code is _WINDOW and masking.causal_mask_function in parts:
            rows = rows.seeing(window(_closed_over(part)["sliding_window"]))
        elif code is _CHUNK:
            held = _closed_over(part)
            rows = rows.counting_from(held["left_padding"].cpu().numpy()[:, None] - first_key)
            rows = rows.seeing(chunk(held["chunk_size"]))
        elif (
            isinstance(part, Local)
            and getattr(part.function, "__code__", None) is _CHUNK
            and _PACKED in codes
        ):
            held = _closed_over(part.function)
            local = part.positions.cpu().numpy() - held["left_padding"].cpu().numpy()[:, None]
            rows = rows.counting_from(rows.position - local).seeing(chunk(held["chunk_size"]))
        elif code is _PACKED:
            ids = _closed_over(part)["packed_sequence_mask"].cpu().numpy()
            rows = rows.in_sequences(ids[:, first_key:], ids[:, first_row:])
        else:
            return None
        if rows is None:
            return None
    return rows


def shown_names(function: Callable) -> str:
    if torch.compiler.is_compiling():
        return function.__qualname__.partition(".<locals>")[0]
    if getattr(function, "__code__", None) is _OR:
        return " | ".join(shown_names(part) for part in _closed_over(function)["mask_functions"])
    parts = [part.function if isinstance(part, Local) else part for part in _conjunction(function)]
    names = [getattr(part, "__qualname__", "a callable") for part in parts]
    return " & ".join(name.partition(".<locals>")[0] for name in names)


# --- In compiled code ----------------------------------------------------------------------------------------


class _Index:
    """Stands for the positions of rows or keys while a mask function is called, and records its operations. Compiled
    code cannot look into a function, but it can call one. An element of a tensor at such positions is an _Index, too,
    and names the tensor."""

    device = None

    def __init__(self, text: tuple, read: Tensor | None = None):
        self.text, self.read = text, read

    def __sub__(self, other: object) -> _Index:
        return _Index(("-", self.text, other.text if isinstance(other, _Index) else other))

    def __abs__(self) -> _Index:
        return _Index(("abs", self.text))

    def __floordiv__(self, size: int) -> _Index:
        return _Index(("//", self.text, size))

    def _compare(self, sign: str, other: object) -> _Seen:
        return _Seen(((sign, self.text, other.text if isinstance(other, _Index) else other),))

    def __le__(self, other: object) -> _Seen:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> _Seen:
        return self._compare(">", other)

    def __ge__(self, other: object) -> _Seen:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> _Seen:  # type: ignore[override]
        return _Seen(self._compare("==", other).parts, self.read)

    __hash__ = None  # type: ignore[assignment]

    def new_ones(self, *args: object, **kwargs: object) -> _Seen:
        return _Seen(())

    def new_zeros(self, *args: object, **kwargs: object) -> _Seen:
        return _Seen(("nothing",))


class _Seen:
    """Conditions that must all show a key, and the tensor whose numbers a condition compares."""

    device = None

    def __init__(self, parts: tuple, read: Tensor | None = None):
        self.parts, self.read = parts, read

    def __and__(self, other: _Seen) -> _Seen:
        return _Seen(self.parts + other.parts, other.read if self.read is None else self.read)

    def __or__(self, other: _Seen) -> _Seen:
        return _Seen(("or", self.parts, other.parts))

    def to(self, device: object) -> _Seen:
        return self


class _Reading(TorchFunctionMode):
    """Turns indexing by an _Index into an _Index that names the tensor."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.__getitem__:
            index = args[1]
            if isinstance(index, tuple) and isinstance(index[-1], _Index):
                return _Index(index[-1].text, args[0])
            if index == 0:  # The element of the sequence that functions are called with.
                return _Index(_COUNTED)
        return function(*args, **(kwargs or {}))


CAUSAL, ALL = repr(causal()), repr(all_tokens())
_JOINED = masking.and_masks().__qualname__
_Q, _K = ("q",), ("k",)
_COUNTED = ("counted",)  # The number of a sequence's padding tokens, from a tensor.
_Q_IN, _K_IN = ("-", _Q, _COUNTED), ("-", _K, _COUNTED)
_CAUSAL, _ANY, _TOGETHER = ("<=", _K, _Q), (">=", _Q, 0), ("==", _Q, _K)


def see_compiled(
    function: Callable, use_vmap: bool, q_offset: int | Tensor, options: dict[str, object]
) -> tuple[str, Tensor | None] | None:
    """Return the text of `see_of`'s visibility, and for packed sequences the numbers of rows, int[batch, rows], or
    None. The function reads these numbers; they rise along a batch's row, and rows see the keys with their own number.
    Transformers joins functions that look into tensors only when it must not skip the mask; otherwise it skips it for
    caches of fixed size. Code that is compiled without a mask always packs sequences: only the tensors know whether
    there are several."""
    if function is masking.causal_mask_function:
        return CAUSAL, None
    if function is masking.bidirectional_mask_function:
        return ALL, None
    if use_vmap or function.__qualname__ != _JOINED:
        return None
    skips = options.get("allow_is_causal_skip", True) or "allow_is_bidirectional_skip" in options
    packs = not (skips or isinstance(q_offset, Tensor))
    size = options.get("local_size")  # The size of a window or a chunk; chunks look into a tensor.
    if size is None and not packs:
        return None
    if not packs:
        with _Reading():
            parts = function(0, 0, _Index(_Q), _Index(_K)).parts
        if parts == ((">", _K, ("-", _Q, size)), _CAUSAL):
            return f"window({size})", None
        if parts == (("<=", ("abs", ("-", _Q, _K)), size), _ANY):
            return f"window({size}, {size})", None
        if parts == (("==", ("//", _K_IN, size), ("//", _Q_IN, size)), _CAUSAL):
            return f"chunk({size}) & causal()", None
        return None
    if size is not None and size == getattr(options.get("config"), "attention_chunk_size", None):
        return None
    with _Reading():
        seen = function(0, 0, _Index(_Q), _Index(_K))
    if size is None and seen.parts == (_CAUSAL, _TOGETHER):
        return CAUSAL, seen.read
    if size is not None and seen.parts == ((">", _K, ("-", _Q, size)), _CAUSAL, _TOGETHER):
        return f"window({size})", seen.read
    return None
