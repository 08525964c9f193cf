# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The keys that each row sees, and the runs of keys that are seen by the same rows.

`Rows` are the rows of a batch whose visible keys are a range in each: those from `begin` to `end` (exclusive) and, of
these, the ones that a visibility shows. As long as `begin` and `end` never fall from row to row, each run of keys
between two of them is seen by a contiguous range of rows, which instances of a store can express.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy
from numpy import ndarray

from ...describe.visibility import Visibility, all_tokens, causal, window


@dataclass(frozen=True)
class Rows:
    """`begin`, `end`, `position`: ints [batch, rows], as indices of keys. The visibility `see` counts positions from
    the key `origin`, [batch, rows]; rows that see a key in common have the same origin."""

    begin: ndarray
    end: ndarray
    position: ndarray
    see: Visibility
    origin: ndarray

    @classmethod
    def of_all(cls, position: ndarray, keys: int) -> Rows:
        """Return rows that see all keys."""
        none = numpy.zeros_like(position)
        return cls(none, none + keys, position, all_tokens(), none)

    def seeing(self, see: Visibility) -> Rows:
        """Return the rows restricted to what `see` shows."""
        if see == causal() and not shows_ahead(self.see):
            return self
        if self.see == all_tokens() or (self.see == causal() and not shows_ahead(see)):
            return replace(self, see=see)
        return replace(self, see=self.see & see)

    def counting_from(self, origin: ndarray) -> Rows:
        """Return the rows with another origin, [batch, 1 or rows]. Rows before it are padding, and see nothing."""
        origin = numpy.broadcast_to(origin, self.position.shape)
        return replace(self, origin=origin, end=numpy.where(self.position < origin, 0, self.end))

    def in_sequences(self, of_keys: ndarray, of_rows: ndarray) -> Rows | None:
        """Return the rows restricted to keys with their own number, [batch, keys] and [batch, rows]. None if these are
        not a range."""
        if of_keys.shape[1] < self.end.max() or of_rows.shape[1] < self.begin.shape[1]:
            return None
        of_rows = of_rows[:, : self.begin.shape[1]]
        begin, end = numpy.empty_like(self.begin), numpy.empty_like(self.end)
        for i, numbers in enumerate(of_keys):
            if (numpy.diff(numbers) < 0).any():
                return None
            begin[i] = numpy.searchsorted(numbers, of_rows[i], "left")
            end[i] = numpy.searchsorted(numbers, of_rows[i], "right")
        return self._between(begin, end)

    def with_blocks(self, blocks: ndarray) -> Rows | None:
        """Let rows of a block see all of it, too. A block is a range of keys in a row with the same number >= 0. None
        if a window hides a part of a block from its rows."""
        if self.see != causal() and not is_window(self.see):
            return None
        most = self.see.own[0] if is_window(self.see) else 0
        position = self.position.copy()
        for i, numbers in enumerate(blocks):
            edges = numpy.flatnonzero(numpy.diff(numbers)) + 1
            begins, ends = numpy.append(0, edges), numpy.append(edges, len(numbers))
            used = numbers[begins]
            if len(set(used[used >= 0])) != (used >= 0).sum():
                return None
            for begin, end in zip(begins[used >= 0], ends[used >= 0], strict=True):
                inside = (self.position[i] >= begin) & (self.position[i] < end)
                position[i][inside] = end - 1
                begin_too_late = (self.begin[i] > begin) | (self.end[i] < end)
                hides = most and (end - most > self.begin[i])
                if (inside & (begin_too_late | hides)).any():
                    return None
        return replace(self, position=position)

    def _between(self, begin: ndarray, end: ndarray) -> Rows:
        return replace(self, begin=numpy.maximum(begin, self.begin), end=numpy.minimum(end, self.end))


def read_rows(seen: ndarray) -> Rows | None:
    """Read rows from a mask, bool [batch, rows, keys]. None if a row's keys are not a range, or if the ranges are not a
    window."""
    batch, rows, keys = seen.shape
    any_seen = seen.any(2)
    if not any_seen.all():
        return None
    begin, end = seen.argmax(2), keys - seen[:, :, ::-1].argmax(2)
    if (seen.sum(2) != end - begin).any():
        return None
    last = end - 1
    none = numpy.zeros_like(begin)
    if _grows(begin) and _runs(begin) <= 16 + rows // 8:
        return Rows(begin, none + keys, last, causal(), none)
    # A window: if the last key cuts it short, its rows have positions after that key.
    size = int((end - begin).max())
    before = numpy.minimum(begin, begin[:, :1])  # Those of the first row.
    position = numpy.where((last == keys - 1) & (begin > before), begin + size - 1, last)
    first = numpy.where(position - begin + 1 < size, begin, 0)
    first = numpy.maximum.accumulate(first, 1)
    if (numpy.maximum(first, position - size + 1) != begin).any() or _runs(first) > 16 + rows // 8:
        return None
    return Rows(first, none + keys, position, window(size), none)


def shows_ahead(see: Visibility) -> bool:
    """Whether rows see tokens after their own position."""
    return bool(see.sees(0, 1))


def is_window(see: Visibility) -> bool:
    """Whether rows see a number of tokens up to their own."""
    return see.kind == "window" and len(see.own) == 1


def _grows(table: ndarray) -> bool:
    return bool((numpy.diff(table, axis=1) >= 0).all())


def _runs(table: ndarray) -> int:
    return int((numpy.diff(table, axis=1) != 0).sum(1).max(initial=0)) + 1


def segments(rows: Rows, keys: int, shown: ndarray | None) -> tuple[ndarray, ndarray]:
    """Return runs of keys, and the positions of rows, int32 [batch, rows]. Runs are int32 [runs, 6]: the sequence, the
    first key and the index past the last, the first row that sees them and the index past the last (both 0 if none
    does), the position of the first key. The runs of each sequence cover all `keys`."""
    batch, count = rows.begin.shape
    table = []
    for i in range(batch):
        begin, end = rows.begin[i].clip(0, keys), rows.end[i].clip(0, keys)
        cuts = [0, keys, *begin, *end]
        if shown is not None:
            cuts += (numpy.flatnonzero(numpy.diff(shown[i])) + 1).tolist()
        cuts = numpy.unique(cuts)
        for first, last in zip(cuts[:-1], cuts[1:], strict=True):
            top = int(numpy.searchsorted(end, first, "right"))
            bottom = int(numpy.searchsorted(begin, first, "right"))
            if bottom <= top or (shown is not None and not shown[i, first]):
                top = bottom = 0
            begins = first - rows.origin[i, top] if bottom > top else 0
            table.append((i, first, last, top, bottom, begins))
    positions = numpy.maximum(rows.position - rows.origin, 0)
    return numpy.array(table, numpy.int32).reshape(-1, 6), positions.astype(numpy.int32)
