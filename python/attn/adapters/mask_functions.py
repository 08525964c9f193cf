# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of positions that Transformers makes masks of, in attn's words.

A function is understood where Transformers made it: by its code, not by its name. (Source: transformers.masking_utils.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers.masking_utils as masking
from torch import Tensor

from .visible_rows import Rows


@dataclass(frozen=True)
class See:
    """What rows see beside their spans: `causal`, of it the `window` last (0: all). A row's position is `shift` later
    than its own: bidirectional windows are causal ones of rows that stand further behind."""

    causal: bool
    window: int = 0
    shift: int = 0


def _code(made: Callable) -> object:
    return made.__code__


_WINDOW = _code(masking.sliding_window_overlay(1))
_BOTH_WAYS = _code(masking.sliding_window_bidirectional_overlay(1))
_CHUNK = _code(masking.chunked_overlay(1, torch.zeros(1, dtype=torch.int64)))
_PACKED = _code(masking.packed_sequence_mask_function(torch.zeros(1, 1)))
_BLOCKS = _code(masking.blockwise_overlay(torch.zeros(1, 1)))
_AND = _code(masking.and_masks())
_OR = _code(masking.or_masks())


def _closed_over(function: Callable) -> dict[str, object]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _conjunction(function: Callable) -> list[Callable]:
    """The functions of which all have to show a key."""
    if getattr(function, "__code__", None) is not _AND:
        return [function]
    return [part for joined in _closed_over(function)["mask_functions"] for part in _conjunction(joined)]


def see_of(function: Callable) -> See | None:
    """Of functions that need no more than spans; None of others."""
    parts = _conjunction(function)
    codes = [getattr(part, "__code__", None) for part in parts]
    causal = masking.causal_mask_function in parts
    whole = masking.bidirectional_mask_function in parts
    if len(parts) == 1 and (causal or whole):
        return See(causal)
    if len(parts) == 2 and (causal or whole) and codes[0] in (_WINDOW, _BOTH_WAYS):
        size = _closed_over(parts[0])["sliding_window"]
        if causal:
            return See(True, size if codes[0] is _WINDOW else size + 1)
        if codes[0] is _BOTH_WAYS:
            return See(True, 2 * size + 1, size)
    return None


def describe(function: Callable, rows: Rows, first_key: int, first_row: int) -> Rows | None:
    """What rows see by functions that are known; None where one is not."""
    blocks = None
    if getattr(function, "__code__", None) is _OR:
        function, *others = _closed_over(function)["mask_functions"]
        if len(others) != 1 or getattr(others[0], "__code__", None) is not _BLOCKS:
            return None
        blocks = _closed_over(others[0])["block_sequence_ids"]
    parts = _conjunction(function)
    for part in parts:
        code = getattr(part, "__code__", None)
        if part is masking.causal_mask_function:
            rows = rows.seeing(True, rows.window, 0)
        elif part is masking.bidirectional_mask_function:
            pass
        elif code is _WINDOW and masking.causal_mask_function in parts:
            rows = rows.seeing(True, _closed_over(part)["sliding_window"], 0)
        elif code is _CHUNK:
            held = _closed_over(part)
            rows = rows.in_chunks(held["chunk_size"], held["left_padding"].cpu().numpy() - first_key)
        elif code is _PACKED:
            ids = _closed_over(part)["packed_sequence_mask"].cpu().numpy()
            rows = rows.in_sequences(ids[:, first_key:], ids[:, first_row:])
        else:
            return None
        if rows is None:
            return None
    return rows if blocks is None else rows.with_blocks(blocks.cpu().numpy()[:, first_key:])


def shown_names(function: Callable) -> str:
    if torch.compiler.is_compiling():
        return function.__qualname__.partition(".<locals>")[0]
    if getattr(function, "__code__", None) is _OR:
        return " | ".join(shown_names(part) for part in _closed_over(function)["mask_functions"])
    names = [getattr(part, "__qualname__", "a callable") for part in _conjunction(function)]
    return " & ".join(name.partition(".<locals>")[0] for name in names)


# --- In compiled code ----------------------------------------------------------------------------------------


class _Index:
    """Stands for the positions of rows or keys while a mask function is called: what it does is written down. Compiled
    code cannot look into a function, but it can call one."""

    device = None

    def __init__(self, text: tuple):
        self.text = text

    def __sub__(self, other: object) -> _Index:
        return _Index(("-", self.text, other.text if isinstance(other, _Index) else other))

    def __abs__(self) -> _Index:
        return _Index(("abs", self.text))

    def _compare(self, sign: str, other: object) -> _Seen:
        return _Seen(((sign, self.text, other.text if isinstance(other, _Index) else other),))

    def __le__(self, other: object) -> _Seen:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> _Seen:
        return self._compare(">", other)

    def __ge__(self, other: object) -> _Seen:
        return self._compare(">=", other)

    def new_ones(self, *args: object, **kwargs: object) -> _Seen:
        return _Seen(())


class _Seen:
    device = None

    def __init__(self, parts: tuple):
        self.parts = parts

    def __and__(self, other: _Seen) -> _Seen:
        return _Seen(self.parts + other.parts)

    def to(self, device: object) -> _Seen:
        return self


_JOINED = masking.and_masks().__qualname__
_Q, _K = ("q",), ("k",)
_CAUSAL, _ANY = ("<=", _K, _Q), (">=", _Q, 0)


def see_compiled(
    function: Callable, use_vmap: bool, q_offset: int | Tensor, options: dict[str, object]
) -> See | None:
    """As `see_of`. Functions that look into tensors cannot be asked: Transformers joins those (packed sequences, blocks)
    only where it forbids itself to leave the mask away, which it else does for caches of fixed size."""
    if function is masking.causal_mask_function:
        return See(True)
    if function is masking.bidirectional_mask_function:
        return See(False)
    skips = options.get("allow_is_causal_skip", True) or "allow_is_bidirectional_skip" in options
    joined = function.__qualname__ == _JOINED
    if use_vmap or not joined or not (skips or isinstance(q_offset, Tensor)):
        return None
    size = options.get("local_size")  # of a window, or of chunks, which look into a tensor
    config = options.get("config")
    if size is None or size == getattr(config, "attention_chunk_size", None):
        return None
    parts = function(0, 0, _Index(_Q), _Index(_K)).parts
    if parts == ((">", _K, ("-", _Q, size)), _CAUSAL):
        return See(True, size)
    if parts == (("<=", ("abs", ("-", _Q, _K)), size), _ANY):
        return See(True, 2 * size + 1, size)
    return None
