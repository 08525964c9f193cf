# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which keys of a padded batch rows may see at all, and the instances of a packed store that say so.

Two forms, int32 in CPU memory:

    spans     [batch, 4], where each sequence sees one range of keys: index of the first, index behind the last, position
              of index 0, position of the first row; positions count from the sequence's first token
    segments  [runs, 5], with positions [batch, rows] of the rows, as indices of keys: see visible_rows.py
"""

from __future__ import annotations

import numpy
from numpy import ndarray


def shown_tokens(mask: ndarray | None, kv_length: int, first_key: int) -> ndarray | None:
    """bool [batch, kv_length], of a mask of padding [batch, positions]; what is beyond it is padding."""
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
    """The spans of a batch, from its mask of padding, which has no holes."""
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


def first_hole(shown: ndarray | None) -> tuple[int, int] | None:
    """Sequence and index of the first hidden key between others."""
    if shown is None:
        return None
    any_seen = shown.any(1)
    first = numpy.where(any_seen, shown.argmax(1), 0)
    end = numpy.where(any_seen, shown.shape[1] - shown[:, ::-1].argmax(1), 0)
    for row in numpy.flatnonzero(shown.sum(1) != end - first):
        return int(row), int(first[row] + shown[row, first[row] : end[row]].argmin())
    return None


def seen(
    spans: ndarray,
    positions: ndarray | None,
    batch: int,
    causal: bool,
    window: int,
    shift: int,
    rows: int,
    tokens: int,
) -> ndarray:
    """The mask itself, bool [batch, rows, tokens]."""
    keys = numpy.arange(tokens)
    if positions is None:
        first, end, first_position, row_position = spans.reshape(batch, 4).T.astype(numpy.int64)
        inside = (keys >= first[:, None]) & (keys < end[:, None])
        shown = numpy.repeat(inside[:, None], rows, 1)
        positions = (row_position - first_position)[:, None] + numpy.arange(rows) + shift
    else:
        shown = numpy.zeros((batch, rows, tokens), bool)
        for sequence, first, end, top, bottom in spans:
            shown[sequence, top:bottom, first:end] = True
    if causal:
        shown &= keys <= positions[:, :, None]
    if window:
        shown &= positions[:, :, None] - keys < window
    return shown


def tables(
    spans: ndarray,
    positions: ndarray | None,
    causal: bool,
    shift: int,
    batch: int,
    heads_apart: int,
    rows: int,
    tokens: int,
) -> dict[str, ndarray]:
    """Those of a packed store that holds `tokens` keys for each sequence, or for each of its `heads_apart` heads, which
    lie together. Packed instances lie one behind the other: keys that a sequence hides are behind the end of the
    instance before, or instances that no row sees."""
    count = batch * heads_apart
    found = {"q_start": numpy.arange(count + 1, dtype=numpy.int32) * numpy.int32(rows)}
    if positions is None:
        found |= _of_spans(spans.reshape(batch, 4), causal, shift, heads_apart, rows, tokens)
    else:
        found |= _of_segments(spans, positions, heads_apart, rows, tokens)
    found["kv.start"][-1] = count * tokens
    return found


def _of_spans(
    spans: ndarray, causal: bool, shift: int, heads_apart: int, rows: int, tokens: int
) -> dict[str, ndarray]:
    """An instance for each head of a sequence, and one in front of them, since the first must begin at 0. Rows before the
    first token are padding where they are causal; else they may count apart from the keys, as those that attend to
    another sequence do."""
    first, end, first_position, row_position = spans.T
    top = numpy.clip(first_position + first - row_position - shift, 0, rows) if causal else 0
    sees = (end > first) & (top < rows)
    count = len(spans) * heads_apart
    start, lengths, pos0 = (numpy.zeros(count + more, numpy.int32) for more in (2, 1, 1))
    seen = numpy.zeros((count + 1, 2), numpy.int32)
    by_head = numpy.arange(count, dtype=numpy.int32)
    start[1:-1] = by_head * tokens + numpy.repeat(first, heads_apart)
    lengths[1:] = numpy.repeat(numpy.where(sees, end - first, 0), heads_apart)
    pos0[1:] = numpy.repeat(numpy.where(sees, first_position + first, 0), heads_apart)
    seen[1:, 0] = by_head * rows + numpy.repeat(numpy.where(sees, top, 0), heads_apart)
    seen[1:, 1] = by_head * rows + numpy.repeat(numpy.where(sees, rows, 0), heads_apart)
    positions = numpy.maximum(row_position[:, None] + numpy.arange(shift, shift + rows, dtype=numpy.int32), 0)
    return {
        "q_pos": numpy.repeat(positions, heads_apart, 0).ravel(),
        "kv.start": start,
        "kv.lengths": lengths,
        "kv.pos0": pos0,
        "kv.rows": seen,
    }


def _of_segments(
    runs: ndarray, positions: ndarray, heads_apart: int, rows: int, tokens: int
) -> dict[str, ndarray]:
    count = len(runs)
    of_head = numpy.repeat(runs[:, 0], heads_apart) * heads_apart + numpy.tile(
        numpy.arange(heads_apart), count
    )
    order = numpy.argsort(of_head, kind="stable")
    of_head = of_head[order].astype(numpy.int32)
    first, end, top, bottom = (numpy.repeat(column, heads_apart)[order] for column in runs.T[1:])
    sees = bottom > top
    first_row = of_head * rows
    return {
        "q_pos": numpy.repeat(positions, heads_apart, 0).reshape(-1).astype(numpy.int32),
        "kv.start": numpy.append(of_head * tokens + first, 0).astype(numpy.int32),
        "kv.lengths": numpy.where(sees, end - first, 0).astype(numpy.int32),
        "kv.pos0": numpy.where(sees, first, 0).astype(numpy.int32),
        "kv.rows": numpy.where(sees, [first_row + top, first_row + bottom], 0).T.astype(numpy.int32),
    }
