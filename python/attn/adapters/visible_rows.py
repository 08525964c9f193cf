# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What rows see, row by row, and the runs of keys that share who sees them.

`Rows` are the rows of a batch whose visible keys are a range in each: those from `begin` to `end` (exclusive) and, of
these, the ones up to the row's position, `window` at most. As long as `begin` and `end` never fall from row to row, each
run of keys between two of them is seen by a contiguous range of rows, which is what instances of a store can say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy
from numpy import ndarray


@dataclass(frozen=True)
class Rows:
    """`begin`, `end`, `position`: ints [batch, rows], as indices of keys. Without `causal` positions hide nothing."""

    begin: ndarray
    end: ndarray
    position: ndarray
    causal: bool
    window: int

    def seeing(self, causal: bool, window: int, shift: int) -> Rows:
        return replace(self, causal=causal, window=window, position=self.position + shift)

    def in_chunks(self, size: int, first: ndarray) -> Rows:
        """Rows see their own chunk of `size` keys; the first begins at the key `first`, [batch, 1 or rows]."""
        chunk = (self.position - first) // size * size + first
        return self._between(chunk, chunk + size)

    def in_sequences(self, of_keys: ndarray, of_rows: ndarray) -> Rows | None:
        """Rows see the keys with their own number, [batch, keys] and [batch, rows]. None where those are no range."""
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
        """Rows of a block, of keys in a row with the same number >= 0, see all of it, too. None where a window hides a
        part of a block from its rows."""
        if not self.causal:
            return None
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
                hides = self.window and (end - self.window > self.begin[i])
                if (inside & (begin_too_late | hides)).any():
                    return None
        return replace(self, position=position)

    def _between(self, begin: ndarray, end: ndarray) -> Rows:
        return replace(self, begin=numpy.maximum(begin, self.begin), end=numpy.minimum(end, self.end))


def read_rows(seen: ndarray) -> Rows | None:
    """From a mask, bool [batch, rows, keys]. None where a row's keys are no range, or those of all rows no window."""
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
        return Rows(begin, none + keys, last, True, 0)
    # A window: where it is cut short by the last key, its rows stand behind that.
    window = int((end - begin).max())
    before = numpy.minimum(begin, begin[:, :1])  # of the first row
    position = numpy.where((last == keys - 1) & (begin > before), begin + window - 1, last)
    first = numpy.where(position - begin + 1 < window, begin, 0)
    first = numpy.maximum.accumulate(first, 1)
    if (numpy.maximum(first, position - window + 1) != begin).any() or _runs(first) > 16 + rows // 8:
        return None
    return Rows(first, none + keys, position, True, window)


def _grows(table: ndarray) -> bool:
    return bool((numpy.diff(table, axis=1) >= 0).all())


def _runs(table: ndarray) -> int:
    return int((numpy.diff(table, axis=1) != 0).sum(1).max(initial=0)) + 1


def segments(rows: Rows, keys: int, shown: ndarray | None) -> tuple[ndarray, ndarray]:
    """Runs of keys, int32 [runs, 5]: the sequence, the first key and the one behind the last, the first row that sees
    them and the one behind the last (both 0 where none does); of each sequence they cover all `keys`. And the positions of
    rows, int32 [batch, rows]."""
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
            table.append((i, first, last, top, bottom))
    return numpy.array(table, numpy.int32).reshape(-1, 5), rows.position.astype(numpy.int32)
