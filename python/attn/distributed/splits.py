# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rows each rank has: splits of a batch over the ranks of a group.

A balanced split needs no rule for a mask. Rows are cut into blocks, a block costs the tokens that its rows see, and
blocks are given to the rank with the least cost, the largest first, while ranks keep equal numbers of rows. For one
causal sequence the result is the zig-zag: the first and the last block for one rank, the second and the last but one
for the next. Windows, sinks, documents of any lengths and forests have other costs and the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ..describe.visibility import Visibility, all_tokens
from ..errors import PlanError, closest, expected
from .sequences import Sequences, expanded, merged, sequences_of

METHODS = ("balanced", "zigzag", "contiguous")
# Rows of a block where results are the same bits for any number of ranks: a multiple of the rows of each tile
# of the kernels, 64, 128 and 192.
ORDERED_BLOCK = 384
_BLOCK = 128
_EVEN = 1.005  # The largest cost over the mean that needs no smaller blocks.
# The cost of a row beside the tokens that it sees, in tokens: its query is loaded, its result stored.
_ROW = 32


@dataclass(frozen=True)
class Split:
    """A row split, the rows of each rank; `attn.distributed.split` makes it. Equal splits compare equal.

    tokens    rows of the whole batch (of a dense tensor: of each sequence)
    parts     for each rank the ranges [begin, end) of its rows, ascending
    block     ranges begin at multiples of it, counted from the begin of a sequence or node; 0: anywhere
    """

    tokens: int
    parts: tuple[tuple[tuple[int, int], ...], ...]
    block: int = 0

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.parts)

    def rows(self, rank: int) -> numpy.ndarray:
        """Return the rows of a rank in the order of its tensors: int64."""
        return expanded(self.parts[rank])

    def count(self, rank: int) -> int:
        """Return the number of rows of a rank."""
        return sum(end - begin for begin, end in self.parts[rank])

    def costs(self, tokens: object, see: Visibility | None = None) -> list[int]:
        """Return how many pairs of a row and a token that it sees each rank has. `tokens` and `see` as of `split`."""
        seen = sequences_of(tokens).visible(all_tokens() if see is None else see)
        return [int(seen[self.rows(rank)].sum()) for rank in range(self.ranks)]

    def __repr__(self) -> str:
        rows = [self.count(rank) for rank in range(self.ranks)]
        pieces = sum(map(len, self.parts))
        return f"<attn.distributed.Split of {self.tokens} rows over {self.ranks} ranks: {rows} in {pieces} ranges>"


def split(
    tokens: Any,
    ranks: int,
    *,
    see: Visibility | None = None,
    method: str = "balanced",
    block: int | None = None,
    ordered: bool = False,
) -> Split:
    """Cut the rows of a batch into one part for each rank.

    tokens    the length of the sequences of a dense tensor; offsets of packed sequences (cu_seqlens); or an attn.Forest
    ranks     of the group, or of both dimensions of a mesh together
    see       the visibility, such as attn.causal(); by default all tokens of a sequence
    method    "balanced": ranks see equally many tokens and have equally many rows, up to a block; "zigzag": each sequence
              is cut into 2 * ranks equal ranges, of which rank r has the r-th and the r-th from the end; "contiguous": one
              range for each rank, with equally many rows
    block     balanced: the least rows of a block, 128 by default. Blocks are as large as balance permits
    ordered   for attend(ordered=True): blocks have 384 rows, or a multiple of it, counted from the begin of a sequence or
              node

    A rank may have no rows. Every rank makes the same split from the same arguments. Raises PlanError.
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise expected(PlanError, "ranks", "a number from 1 on", ranks, nearest=1)
    if method not in METHODS:
        nearest = closest(method, METHODS) if isinstance(method, str) else None
        raise expected(PlanError, "method", " or ".join(METHODS), method, nearest=nearest)
    least = ORDERED_BLOCK if ordered else _BLOCK
    size = least if block is None else block
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or (ordered and size % least):
        legal = f"a multiple of {least} beside ordered=True" if ordered else "a number of rows from 1 on"
        nearest = max(size // least, 1) * least if ordered and isinstance(size, int) else 1
        raise expected(PlanError, "block", legal, block, nearest=nearest)
    whole = sequences_of(tokens)
    if method != "balanced":
        if ordered or block is not None:
            name = "ordered" if ordered else "block"
            raise PlanError(f"{name}: expected beside method='balanced', got method={method!r}")
        parts = _zigzag(whole, ranks) if method == "zigzag" else _contiguous(whole.tokens, ranks)
        return Split(whole.tokens, parts)
    return _balanced(whole, ranks, all_tokens() if see is None else see, size, ordered)


def split_of_parts(tokens: int, parts: Sequence[Sequence[tuple[int, int]]]) -> Split:
    """Make a split from ranges of rows, for orders that other code has chosen. Each row belongs to one rank. Raises
    PlanError."""
    made = tuple(merged([(int(a), int(b)) for a, b in part]) for part in parts)
    rows = numpy.sort(numpy.concatenate([expanded(part) for part in made]))
    if len(rows) != tokens or (rows != numpy.arange(tokens)).any():
        raise PlanError(
            f"parts: expected each of the {tokens} rows once, got {len(rows)} rows, {len(numpy.unique(rows))} of them "
            "different"
        )
    return Split(tokens, made)


def _contiguous(tokens: int, ranks: int) -> tuple:
    ends = [tokens * rank // ranks for rank in range(ranks + 1)]
    return tuple(merged([pair]) for pair in zip(ends, ends[1:], strict=False))


def _zigzag(whole: Sequences, ranks: int) -> tuple:
    parts: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    starts = whole.q_start.tolist()
    for begin, end in zip(starts, starts[1:], strict=False):
        ends = [begin + (end - begin) * i // (2 * ranks) for i in range(2 * ranks + 1)]
        for rank in range(ranks):
            for i in (rank, 2 * ranks - 1 - rank):
                parts[rank].append((ends[i], ends[i + 1]))
    return tuple(map(merged, parts))


def _balanced(whole: Sequences, ranks: int, see: Visibility, least: int, ordered: bool) -> Split:
    """Double the number of blocks until costs and rows are even, or blocks are as small as permitted."""
    sums = numpy.concatenate([[0], numpy.cumsum(whole.visible(see) + _ROW)])
    mean = sums[-1] / ranks
    pieces = 2 * ranks
    while True:
        size = max(-(-whole.tokens // pieces // least) * least, least)
        parts, most, rows = _assigned(whole, sums, ranks, size)
        is_even = most <= _EVEN * mean and rows <= _EVEN * whole.tokens / ranks + least
        if is_even or size == least:
            return Split(whole.tokens, parts, least if ordered else 0)
        pieces *= 2


def _assigned(whole: Sequences, sums: numpy.ndarray, ranks: int, size: int) -> tuple[tuple, int, int]:
    """Give blocks to ranks, the costliest first; returns parts, and the largest cost and number of rows."""
    begins, ends = _blocks(whole.q_start, size)
    costs = sums[ends] - sums[begins]
    capacity = -(-whole.tokens // ranks) + (size if len(numpy.unique(ends - begins)) > 1 else 0)
    capacity = max(capacity, -(-len(begins) // ranks) * size) if capacity % size else capacity
    cost, rows = [0] * ranks, [0] * ranks
    parts: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for i in numpy.argsort(-costs, kind="stable").tolist():
        begin, end = int(begins[i]), int(ends[i])
        fits = [rank for rank in range(ranks) if rows[rank] + end - begin <= capacity]
        best = min(fits, key=lambda rank: (cost[rank], rank)) if fits else rows.index(min(rows))
        cost[best] += int(costs[i])
        rows[best] += end - begin
        parts[best].append((begin, end))
    return tuple(map(merged, parts)), max(cost), max(rows)


def _blocks(starts: numpy.ndarray, size: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Cut each sequence or node into blocks of `size` rows; returns their begins and ends."""
    lengths = numpy.diff(starts)
    counts = -(-lengths // size)
    sequence = numpy.repeat(numpy.arange(len(lengths)), counts)
    number = numpy.arange(int(counts.sum())) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    begins = starts[:-1][sequence] + number * size
    return begins, numpy.minimum(begins + size, starts[1:][sequence])


def check_split(given: object, tokens: object, ranks: int, see: Visibility, ordered: bool) -> Split:
    """Return the split that `attend` was given, or the one that a name stands for. `tokens`: as of `split`. PlanError."""
    if isinstance(given, str):
        return split(tokens, ranks, see=see, method=given, ordered=ordered)
    if not isinstance(given, Split):
        raise expected(
            PlanError, "split", "an attn.distributed.Split, or one of " + ", ".join(METHODS), given
        )
    if given.ranks != ranks:
        raise PlanError(
            f"split: expected a part for each of the {ranks} ranks of the group, got {given.ranks}"
        )
    if ordered and (not given.block or given.block % ORDERED_BLOCK):
        raise PlanError(
            f"split: expected blocks of a multiple of {ORDERED_BLOCK} rows beside ordered=True, got {given.block or 'none'}; "
            "make it with attn.distributed.split(..., ordered=True)"
        )
    return given
