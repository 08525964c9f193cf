# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The keys of a padded batch that rows may see at all, and the instances of a packed store that express them.

Two forms, int32 in CPU memory:

    spans     [batch, 4], if each sequence sees one range of keys: index of the first, index past the last, position
              of index 0, position of the first row; positions count from the sequence's first token
    segments  [runs, 6], with positions [batch, rows] of the rows: see visible_rows.py; in compiled code rows of -1 may
              follow
"""

from __future__ import annotations

import functools

import numpy
import torch
from numpy import ndarray
from torch import Tensor

from ...describe.visibility import Visibility
from .visible_rows import shows_ahead


def shown_tokens(mask: ndarray | None, kv_length: int, first_key: int) -> ndarray | None:
    """Return bool [batch, kv_length] from a padding mask [batch, positions]; keys beyond the mask are padding."""
    if mask is None:
        return None
    given = mask[:, first_key : first_key + kv_length].astype(bool)
    shown = numpy.zeros((len(mask), kv_length), bool)
    shown[:, : given.shape[1]] = given
    return shown


def make_spans(
    mask: ndarray | None,
    first_row: int,
    first_key: int,
    batch: int,
    q_length: int,
    kv_length: int,
    causal: bool,
) -> ndarray:
    """Return the spans of a batch from its padding mask, which has no holes."""
    limit = min(kv_length, first_row + q_length - first_key) if causal else kv_length
    out = numpy.empty((batch, 4), numpy.int32)
    out[:] = 0, max(limit, 0), first_key, first_row
    shown = shown_tokens(mask, kv_length, first_key)
    if shown is not None:
        any_seen = shown.any(1)
        out[:, 0] = numpy.where(any_seen, shown.argmax(1), 0)
        end = numpy.where(any_seen, kv_length - shown[:, ::-1].argmax(1), 0)
        out[:, 1] = numpy.minimum(end, out[:, 1])
        out[:, 0] = numpy.minimum(out[:, 0], out[:, 1])
        out[:, 2:] -= mask.astype(bool).argmax(1).astype(numpy.int32)[:, None]
    return out


def reaches(
    positions: int, kv_length: int, first_row: int, first_key: int, q_length: int, causal: bool
) -> bool:
    """Whether a mask of so many positions covers everything that a row could see."""
    end = min(kv_length, first_row + q_length - first_key) if causal else kv_length
    return first_key + end <= positions


def first_hole(shown: ndarray | None) -> tuple[int, int] | None:
    """Return sequence and index of the first hidden key between others; None if there is none."""
    if shown is None:
        return None
    any_seen = shown.any(1)
    first = numpy.where(any_seen, shown.argmax(1), 0)
    end = numpy.where(any_seen, shown.shape[1] - shown[:, ::-1].argmax(1), 0)
    for row in numpy.flatnonzero(shown.sum(1) != end - first):
        return int(row), int(first[row] + shown[row, first[row] : end[row]].argmin())
    return None


def settled(spans: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Drop unused segments. Returns spans and None if each sequence has one segment with all keys that its rows see."""
    if positions is None:
        return spans, None
    runs = spans.numpy()
    runs = runs[: numpy.count_nonzero(runs[:, 0] >= 0)]
    batch, rows = positions.shape
    whole = len(runs) == batch and bool((runs[:, 4] - runs[:, 3] == rows).all() and not runs[:, 1].any())
    if not whole or bool((numpy.diff(positions.numpy(), axis=1) != 1).any()):
        return spans[: len(runs)], positions
    made = numpy.zeros((batch, 4), numpy.int32)
    made[:, 1], made[:, 3] = runs[:, 2], positions[:, 0].numpy()
    return torch.from_numpy(made), None


def seen(
    spans: ndarray,
    positions: ndarray | None,
    batch: int,
    see: Visibility,
    rows: int,
    tokens: int,
) -> ndarray:
    """Return the mask itself, bool [batch, rows, tokens]."""
    keys = numpy.arange(tokens)
    if positions is None:
        first, end, first_position, row_position = spans.reshape(batch, 4, 1, 1).swapaxes(0, 1).astype("i8")
        rows_at = row_position + numpy.arange(rows)[:, None]
        return (keys >= first) & (keys < end) & see.sees(rows_at, first_position + keys)
    shown = numpy.zeros((batch, rows, tokens), bool)
    for sequence, first, end, top, bottom, position in spans:
        rows_at = positions[sequence, top:bottom, None].astype("i8")
        shown[sequence, top:bottom, first:end] = see.sees(rows_at, position + keys[: end - first])
    return shown


def tables(
    spans: ndarray,
    positions: ndarray | None,
    see: Visibility,
    batch: int,
    heads_apart: int,
    rows: int,
    tokens: int,
) -> dict[str, ndarray]:
    """Return the tables of a packed store that holds `tokens` keys for each sequence, or for each of its `heads_apart`
    heads, which are contiguous. Packed instances follow each other: keys that a sequence hides lie past the end of the
    instance before, or in instances that no row sees."""
    if positions is None:
        return _of_spans(spans.reshape(batch, 4), not shows_ahead(see), heads_apart, rows, tokens)
    start = _starts(batch * heads_apart, rows)
    return {"q_start": start} | _of_segments(spans, positions, batch, heads_apart, rows, tokens)


@functools.lru_cache(maxsize=64)
def _starts(count: int, step: int) -> ndarray:
    return (
        numpy.arange(0, (count + 1) * step, step, dtype=numpy.int32) if step else numpy.zeros(count + 1, "i4")
    )


def tables_of_all(count: int, rows: int, tokens: int, end: int) -> dict[str, ndarray]:
    """Return the tables of `count` heads that hide none of their first `end` tokens, whose last ones are the rows: the
    default of plans. It is short because every step of generation calls it."""
    last = numpy.full(count, end - 1, numpy.int32)
    if rows != 1:
        last = (last[:, None] + numpy.arange(1 - rows, 1, dtype=numpy.int32)).ravel()
    return {
        "q_start": _starts(count, rows),
        "q_pos": last,
        "kv.start": _starts(count, 1) * numpy.int32(tokens),
        "kv.lengths": numpy.full(count, end, numpy.int32),
    }


def _of_spans(spans: ndarray, causal: bool, heads_apart: int, rows: int, tokens: int) -> dict[str, ndarray]:
    """Return the tables of spans: an instance for each head of a sequence, and one before them, since the first must
    begin at 0. Causal rows before the first token are padding. Other rows there see tokens near them, so positions,
    which must not be negative, count from them."""
    first, end, first_position, row_position = spans.T
    if not causal:
        before = numpy.maximum(-row_position, 0)
        first_position, row_position = first_position + before, row_position + before
    count = len(spans) * heads_apart
    row_positions = numpy.maximum(row_position[:, None] + numpy.arange(rows, dtype=numpy.int32), 0)
    of_rows = {"q_start": _starts(count, rows), "q_pos": numpy.repeat(row_positions, heads_apart, 0).ravel()}
    position = first_position + first
    top = numpy.clip(position - row_position, 0, rows) if causal else numpy.zeros_like(first)
    sees = (end > first) & (top < rows)
    # By column: a head's start, length, position, and rows that see it.
    found = numpy.zeros((count + 2, 5), numpy.int32)
    of_batch = numpy.stack([first, end - first, position, top, numpy.full_like(first, rows)], 1)
    of_batch[:, 1:] *= sees[:, None]
    found[1:-1] = numpy.repeat(of_batch, heads_apart, 0)
    found[1:-1, 0] += _starts(count, tokens)[:-1]
    found[-1, 0] = count * tokens
    found[1:-1, 3:] += _starts(count, rows)[:-1, None]
    return of_rows | {
        "kv.start": found[:, 0].copy(),
        "kv.lengths": found[:-1, 1].copy(),
        "kv.pos0": found[:-1, 2].copy(),
        "kv.rows": found[:-1, 3:].copy(),
    }


def _of_segments(
    runs: ndarray, positions: ndarray, batch: int, heads_apart: int, rows: int, tokens: int
) -> dict[str, ndarray]:
    count = len(runs)
    of_head = numpy.repeat(runs[:, 0], heads_apart) * heads_apart + numpy.tile(
        numpy.arange(heads_apart), count
    )
    order = numpy.argsort(of_head, kind="stable")
    of_head = of_head[order].astype(numpy.int32)
    first, end, top, bottom, position = (numpy.repeat(column, heads_apart)[order] for column in runs.T[1:])
    sees = bottom > top
    first_row = of_head * rows
    return {
        "q_pos": numpy.repeat(positions, heads_apart, 0).reshape(-1).astype(numpy.int32),
        "kv.start": numpy.append(of_head * tokens + first, batch * heads_apart * tokens).astype(numpy.int32),
        "kv.lengths": ((end - first) * sees).astype(numpy.int32),
        "kv.pos0": (position * sees).astype(numpy.int32),
        "kv.rows": (numpy.stack([first_row + top, first_row + bottom], 1) * sees[:, None]).astype(
            numpy.int32
        ),
    }
