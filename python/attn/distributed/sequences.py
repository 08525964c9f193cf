# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rows and tokens of a whole batch, before any rank has its part: positions, instances, and who sees what.

Every row is also a token. Instances partition the tokens: a sequence, or a node of a forest. The rows that see an
instance are one range. So the tables of any subset of rows over any runs of tokens follow from this description: rows
keep their positions, an instance that is cut becomes instances of its runs, and a range of rows stays a range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from ..describe.forest import Forest
from ..describe.visibility import MAX_SIZE, Visibility
from ..errors import PlanError, expected
from ..memory.tables import int32_array

Runs = Sequence[tuple[int, int]]
"""Ranges [begin, end) of rows or tokens of the whole batch."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """A whole batch. All arrays are int64.

    q_pos     the position of each row: [tokens]
    q_start   the first row of each sequence or node, and the end
    begin     the first token of each instance, which lie one after the other: [instances]
    pos0      the position of that token
    first, last     the rows that see the instance: [instances]
    """

    q_pos: numpy.ndarray
    q_start: numpy.ndarray
    begin: numpy.ndarray
    pos0: numpy.ndarray
    first: numpy.ndarray
    last: numpy.ndarray

    @staticmethod
    def of_starts(starts: numpy.ndarray) -> Sequences:
        """Describe packed sequences by their offsets."""
        starts = starts.astype(numpy.int64)
        q_pos = numpy.arange(int(starts[-1])) - numpy.repeat(starts[:-1], numpy.diff(starts))
        begin, end = starts[:-1], starts[1:]
        return Sequences(q_pos, starts, begin, numpy.zeros_like(begin), begin, end)

    @staticmethod
    def of_forest(forest: Forest) -> Sequences:
        """Describe the nodes of a forest."""
        starts, rows = forest.node_start.astype(numpy.int64), forest.rows.astype(numpy.int64)
        positions, pos0 = forest.positions.astype(numpy.int64), forest.pos0.astype(numpy.int64)
        return Sequences(positions, starts, starts[:-1], pos0, rows[:, 0], rows[:, 1])

    @property
    def tokens(self) -> int:
        """The number of tokens, each of which is a row, too."""
        return len(self.q_pos)

    def digest(self) -> str:
        """Return a short text that equal batches share, and others do not."""
        arrays = (self.q_start, self.q_pos, self.pos0, self.first, self.last)
        return hashlib.blake2b(b"".join(each.tobytes() for each in arrays), digest_size=8).hexdigest()

    def tables(self, rows: Runs, keys: Runs, cut: int = 0) -> dict[str, numpy.ndarray]:
        """Return the tables of a kernel over one packed operand, for `rows` (ascending) and for keys that lie in memory
        run by run. `cut`: instances are cut at multiples of it, counted from their first token; 0: they are not."""
        own = expanded(rows)
        begins, starts, lengths, pos0, first, last = [], [], [], [], [], []
        ends = numpy.append(self.begin[1:], self.tokens)
        offset = 0
        for a, b in keys:
            for i in range(
                int(numpy.searchsorted(ends, a, side="right")), int(numpy.searchsorted(self.begin, b))
            ):
                low, high = max(a, int(self.begin[i])), min(b, int(ends[i]))
                while low < high:
                    next_cut = (
                        int(self.begin[i]) + ((low - int(self.begin[i])) // cut + 1) * cut if cut else high
                    )
                    begins.append(i)
                    starts.append(offset + low - a)
                    lengths.append(min(next_cut, high) - low)
                    pos0.append(int(self.pos0[i]) + low - int(self.begin[i]))
                    low = min(next_cut, high)
            offset += b - a
        first = numpy.searchsorted(own, self.first[begins]) if begins else first
        last = numpy.searchsorted(own, self.last[begins]) if begins else last
        found = {
            "q_start": numpy.searchsorted(own, self.q_start),
            "q_pos": self.q_pos[own],
            "kv.start": numpy.array([*starts, offset]),
            "kv.lengths": numpy.array(lengths),
            "kv.pos0": numpy.array(pos0),
            "kv.rows": numpy.stack([first, last], axis=1) if begins else numpy.zeros((0, 2)),
        }
        return {name: numpy.ascontiguousarray(table, numpy.int32) for name, table in found.items()}

    def visible(self, see: Visibility, keys: Runs | None = None) -> numpy.ndarray:
        """Return the number of tokens that each row sees: int64 [tokens]. `keys`: count only these."""
        runs = [(0, self.tokens)] if keys is None else keys
        found = numpy.zeros(self.tokens, numpy.int64)
        ends = numpy.append(self.begin[1:], self.tokens)
        for a, b in runs:
            low, high = numpy.maximum(self.begin, a), numpy.minimum(ends, b)
            for i in numpy.flatnonzero(low < high):
                begin = int(self.pos0[i] + low[i] - self.begin[i])
                seen = slice(int(self.first[i]), int(self.last[i]))
                found[seen] += count_visible(see, self.q_pos[seen], begin, begin + int(high[i] - low[i]))
        return found


def sequences_of(tokens: object) -> Sequences:
    """Read the first argument of `split`: a number of tokens, offsets of packed sequences, or a forest. PlanError."""
    if isinstance(tokens, Forest):
        return Sequences.of_forest(tokens)
    if isinstance(tokens, int) and not isinstance(tokens, bool):
        if not 0 <= tokens < 2**31:
            raise expected(PlanError, "tokens", "a number from 0 to 2147483647", tokens)
        return Sequences.of_starts(numpy.array([0, tokens]))
    return Sequences.of_starts(check_starts("tokens", tokens))


def check_starts(name: str, offsets: object) -> numpy.ndarray:
    """Return offsets of packed sequences. PlanError."""
    starts = int32_array(name, offsets)
    if starts.ndim != 1 or len(starts) == 0 or starts[0] != 0 or (numpy.diff(starts) < 0).any():
        raise expected(PlanError, name, "offsets that rise from 0, as of cu_seqlens", starts.tolist())
    return starts


def expanded(runs: Runs) -> numpy.ndarray:
    """Return the indices of all runs, in their order: int64."""
    return numpy.concatenate([numpy.arange(a, b) for a, b in runs] or [numpy.zeros(0, numpy.int64)])


def merged(runs: Runs) -> tuple[tuple[int, int], ...]:
    """Return the same indices in ascending runs, as few as possible."""
    found: list[tuple[int, int]] = []
    for a, b in sorted(run for run in runs if run[0] < run[1]):
        if found and found[-1][1] == a:
            found[-1] = found[-1][0], b
        else:
            found.append((a, b))
    return tuple(found)


# --- Counting -------------------------------------------------------------------------------------------------

_FAR = 2 * MAX_SIZE


def count_visible(see: Visibility, positions: numpy.ndarray, begin: int, end: int) -> numpy.ndarray:
    """Return how many of the positions [begin, end) rows at `positions` see."""
    intervals = [
        (numpy.clip(low, begin, end), numpy.clip(high, begin, end))
        for low, high in _intervals(see, positions)
    ]
    if len(intervals) == 1:
        return numpy.maximum(intervals[0][1] - intervals[0][0], 0)
    lows, highs = (numpy.stack(ends) for ends in zip(*intervals, strict=True))
    order = numpy.argsort(lows, axis=0, kind="stable")
    lows, highs = (numpy.take_along_axis(ends, order, axis=0) for ends in (lows, highs))
    reached = numpy.full(len(positions), begin, numpy.int64)
    total = numpy.zeros(len(positions), numpy.int64)
    for low, high in zip(lows, highs, strict=True):
        total += numpy.maximum(high - numpy.maximum(low, reached), 0)
        reached = numpy.maximum(reached, high)
    return total


def _intervals(see: Visibility, q: numpy.ndarray) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Return intervals [low, high) of positions whose union each row sees. They may overlap or be empty."""
    if see.kind == "or":
        return [interval for part in see.parts for interval in _intervals(part, q)]
    if see.kind == "and":
        found = _intervals(see.parts[0], q)
        for part in see.parts[1:]:
            beside = _intervals(part, q)
            found = [
                (numpy.maximum(low, other_low), numpy.minimum(high, other_high))
                for low, high in found
                for other_low, other_high in beside
            ]
        return found
    least, most = numpy.full_like(q, -_FAR), numpy.full_like(q, _FAR)
    if see.kind == "all":
        return [(least, most)]
    if see.kind == "causal":
        return [(least, q + 1)]
    if see.kind == "sink":
        return [(least, numpy.full_like(q, see.own[0]))]
    if see.kind == "chunk":
        low = q // see.own[0] * see.own[0]
        return [(low, low + see.own[0])]
    if len(see.own) == 2:
        return [(q - see.own[0], q + see.own[1] + 1)]
    return [(q - see.own[0] + 1, q + 1)]
