# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefixes that sequences share, found in block tables: equal page numbers in front.

Engines give requests with a common prompt the same pages, and say so nowhere else. Runs of neighbours that share pages make
a tree; each of its nodes is an instance of the kernel's operand, which the rows of all sequences below it read at once."""

from __future__ import annotations

from typing import Any

import numpy


def shared_tables(
    q_start: numpy.ndarray, lengths: numpy.ndarray, block_table: numpy.ndarray, page_size: int, least: int
) -> dict[str, Any] | None:
    """Return the tables of a batch in which neighbours read `least` or more shared pages once; None if there are none.

    q_start      int32 [sequences + 1]: the first row of each sequence, and the number of rows
    lengths      int32 [sequences]: tokens of each sequence; its rows are the last ones
    block_table  int32 [sequences, pages]

    Only pages in front of the rows of both neighbours count: no step writes those. Sequences that are not neighbours share
    nothing here. Wrong tables share nothing either: a plan of the tables themselves says what is wrong."""
    if not _may_share(q_start, lengths, block_table, page_size, least):
        return None
    rows = numpy.diff(q_start)
    if (
        q_start[0]
        or (rows < 0).any()
        or (lengths < rows).any()
        or lengths.max() > block_table.shape[1] * page_size
    ):
        return None
    shared = _shared_pages(q_start, lengths, block_table, page_size)
    nodes = _tree(shared, lengths, page_size, least)
    first, end, depth, tokens = numpy.array(nodes, dtype=numpy.int32).T
    pages = -(-tokens // page_size)
    columns = numpy.arange(max(int(pages.max()), 1))
    at = numpy.minimum(depth[:, None] + columns, block_table.shape[1] - 1)
    last = numpy.arange(q_start[-1]) - numpy.repeat(q_start[:-1], rows)
    return {
        "q_pos": (last + numpy.repeat(lengths - rows, rows)).astype(numpy.int32),
        "kv.lengths": tokens,
        "kv.pos0": depth * page_size,
        "kv.rows": numpy.stack([q_start[first], q_start[end]], 1),
        "kv.block_table": numpy.where(columns < pages[:, None], block_table[first[:, None], at], 0),
    }


def _may_share(
    q_start: numpy.ndarray, lengths: numpy.ndarray, block_table: numpy.ndarray, page_size: int, least: int
) -> bool:
    """Whether neighbours share `least` pages in front of the rows of both."""
    front = block_table[:, :least]
    if front.shape[1] < least:
        return False
    long = lengths - (q_start[1:] - q_start[:-1]) >= least * page_size
    (both,) = (long[:-1] & long[1:] & (front[:-1, -1] == front[1:, -1])).nonzero()
    return bool((front[both] == front[both + 1]).all(1).any())


def _shared_pages(
    q_start: numpy.ndarray, lengths: numpy.ndarray, block_table: numpy.ndarray, page_size: int
) -> numpy.ndarray:
    """Return how many pages each sequence shares with the next one, in front of the rows of both."""
    before = (lengths - numpy.diff(q_start)) // page_size
    most = numpy.minimum(before[:-1], before[1:])
    columns = min(int(most.max(initial=0)), block_table.shape[1])
    table = block_table[:, :columns]
    differ = (table[:-1] != table[1:]) | (numpy.arange(columns) >= most[:, None])
    return numpy.where(differ.any(1), differ.argmax(1) if columns else 0, columns)


def _tree(
    shared: numpy.ndarray, lengths: numpy.ndarray, page_size: int, least: int
) -> list[tuple[int, int, int, int]]:
    """Return the nodes: the first and end of its sequences, its depth in pages, and its tokens."""
    nodes, open_ = [], [(0, len(lengths), 0)]
    while open_:
        first, end, depth = open_.pop()
        if end - first == 1:
            nodes.append((first, end, depth, int(lengths[first]) - depth * page_size))
            continue
        within = shared[first : end - 1]
        common = int(within.min())
        if common - depth >= least:
            nodes.append((first, end, depth, (common - depth) * page_size))
            depth = common
        cuts = [first, *(first + 1 + numpy.flatnonzero(within - depth < least)).tolist(), end]
        open_ += [(a, b, depth) for a, b in zip(cuts, cuts[1:], strict=False)]
    return nodes
