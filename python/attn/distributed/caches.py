# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache of keys and values of which every rank keeps a part of the tokens.

A sequence is cut into chunks of equally many tokens, which ranks take in turns. A chunk on a rank is an instance of its
own: its first token has a position, and the rows of its sequence see it. So windows, sinks and several rows a sequence
are exact, and a rank plans and runs its chunks as it would plan any batch. One collective and one merge follow.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from ..cache.appender import device_of
from ..cache.integers import integers, whole
from ..cache.paged import PagedCache
from ..cache.pages import parts_of_rows
from ..errors import OutOfPages, PlanError, TensorError, Uncopied, expected
from ..run.kernel import Kernel
from ..run.plan import Plan
from .groups import agree
from .states import Partial, _one

_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


class _Chunk:
    """A chunk that this rank keeps."""

    def __init__(self, number: int, node: int):
        self.number, self.node, self.tokens = number, node, 0
        self.pages = numpy.zeros(0, numpy.int32)


@dataclass
class _Written:
    """The counts of an append, until its tokens are written in every layer."""

    counts: list[tuple[int, int]]  # Sequences and their new tokens, on all ranks together.
    pieces: list[tuple[int, int, int]]  # Sequences, chunks and their new tokens on this rank.
    taken: list[int]  # Pages of each rank.
    missing: set[int] = field(default_factory=set)
    failed: bool = False
    taken_back: bool = False


class ShardedCache(Uncopied):
    """A paged cache over several ranks, each of which has `pages` pages and keeps every n-th chunk of a sequence.

    pages     of each rank; the tokens of a page lie on one rank
    chunk     tokens of a chunk, a multiple of page_size; by default 64 pages. Chunk c of sequence s lies on rank
              (s + c) modulo the ranks
    group     as of `attend`, of one dimension
    options   of attn.PagedCache: layers, kv_heads, head_dim, page_size, dtype, formats of keys and values, latents, device

    All ranks make the same calls with the same arguments. Keys and values of new tokens are given on every rank, and each
    writes its own. The cache takes tokens back if nothing refers to their change before they are written in every layer, or
    if it is used after a `write` raised an error. Ranks disagree after an error of one rank alone, such as a lack of memory:
    make the cache again. Raises PlanError, OutOfPages (on every rank, if one rank has too few pages), TensorError.
    """

    _instead = "it owns the pages of its device; make another cache"

    def __init__(self, *, pages: int, group: Any = None, chunk: int | None = None, **options: Any):
        if options.get("classes") or options.get("draft_page") is not None:
            name = "classes" if options.get("classes") else "draft_page"
            raise PlanError(f"{name}: expected none: chunks of several ranks have one class and no drafts")
        self._group = _one(group)
        self.cache = PagedCache(pages=pages, **options)
        """The PagedCache with this rank's chunks."""
        page = self.cache.page_size
        self.chunk = 64 * page if chunk is None else whole("chunk", chunk, 1)
        if self.chunk % page:
            nearest = max(self.chunk // page, 1) * page
            raise expected(
                PlanError, "chunk", f"a multiple of the {page} tokens of a page", chunk, nearest=nearest
            )
        said = {"pages": pages, "chunk": self.chunk} | {
            n: str(v) for n, v in options.items() if n != "device"
        }
        agree([self._group], said)
        self._tokens: dict[int, int] = {}
        self._chunks: dict[int, list[_Chunk]] = {}
        self._free = [pages] * self._group.size
        self._next = 0
        self._last: tuple[weakref.ref, _Written] | None = None

    # --- Changes ---------------------------------------------------------------------------------------------

    def add(self) -> int:
        """Add an empty sequence; returns its number, the same on every rank."""
        sequence, self._next = self._next, self._next + 1
        self._tokens[sequence], self._chunks[sequence] = 0, []
        return sequence

    def append(self, sequences: int | Sequence[int], tokens: int | Sequence[int] = 1) -> ShardedChange:
        """Append new tokens to sequences, as many to each or a number for each. Rows of the change are the tokens of the
        first sequence, then those of the second, and so on. OutOfPages changes nothing."""
        numbers = [sequences] if isinstance(sequences, int) else integers("sequences", sequences)
        counts = (
            [whole("tokens", tokens, 0)] * len(numbers)
            if isinstance(tokens, int)
            else integers("tokens", tokens)
        )
        if len(counts) != len(numbers) or len(set(numbers)) != len(numbers):
            raise PlanError(
                f"tokens: expected a number for each of {len(numbers)} different sequences, got {len(counts)}"
            )
        self._settle(changes=True)
        free, pieces = list(self._free), []
        first = 0
        for sequence, count in zip(numbers, counts, strict=True):
            begin = self.tokens(sequence)
            for number, low, high in self._pieces(begin, begin + whole("tokens", count, 0)):
                rank = (sequence + number) % self._group.size
                free[rank] -= self._pages(high) - self._pages(low)
                if rank == self._group.rank:
                    offset = first + number * self.chunk + low - begin
                    pieces.append((sequence, number, high - low, offset))
            first += count
        if min(free) < 0:
            rank = free.index(min(free))
            raise OutOfPages(
                f"cache: rank {rank} needs {self._free[rank] - free[rank]} pages for its part of the new tokens, and has "
                f"{self._free[rank]}"
            )
        nodes = [self._node(sequence, number) for sequence, number, _, _ in pieces]
        change = self.cache.append(nodes, [count for _, _, count, _ in pieces]) if pieces else None
        written = _Written(
            counts=list(zip(numbers, counts, strict=True)),
            pieces=[(sequence, number, count) for sequence, number, count, _ in pieces],
            taken=[before - after for before, after in zip(self._free, free, strict=True)],
            missing=set(range(self.cache.layers)) if first else set(),
        )
        self._free = free
        for sequence, count in written.counts:
            self._tokens[sequence] += count
        for sequence, number, count in written.pieces:
            self._chunk(sequence, number).tokens += count
        rows = [numpy.arange(offset, offset + count) for _, _, count, offset in pieces]
        own = numpy.concatenate(rows) if rows else numpy.zeros(0, numpy.int64)
        made = ShardedChange(self.cache, change, first, own, written)
        self._last = weakref.ref(made), written
        return made

    def _settle(self, changes: bool = False) -> None:
        """Take back the last change's tokens where a write failed, or nothing refers to it. `changes`: refuse one that can
        still be written. Every rank does the same, with tokens of its own or without."""
        if self._last is None:
            return
        change, written = self._last
        if written.missing and not written.failed and change() is not None:
            if changes:
                raise PlanError(
                    f"cache: {sum(count for _, count in written.counts)} new tokens are not written in layers "
                    f"{sorted(written.missing)}: write them, or call rollback()"
                )
            return
        self._last = None
        if not written.missing:
            return
        written.taken_back = True
        self._free = [free + taken for free, taken in zip(self._free, written.taken, strict=True)]
        for sequence, count in written.counts:
            self._tokens[sequence] -= count
        if written.pieces:
            self.cache.rollback()
        for sequence, number, count in written.pieces:
            chunk = self._chunk(sequence, number)
            chunk.tokens, chunk.pages = chunk.tokens - count, numpy.zeros(0, numpy.int32)
            if not chunk.tokens:
                self._chunks[sequence].remove(chunk)
                self.cache.prune(chunk.node)

    def rollback(self) -> None:
        """Take back the new tokens of the last change, unless they are written in every layer. All ranks call it, after as
        many writes."""
        if self._last is not None:
            self._last[1].failed = True
        self._settle()

    def prune(self, *sequences: int) -> None:
        """Remove sequences, and free their pages on every rank."""
        self._settle(changes=True)
        if len(set(sequences)) != len(sequences):
            raise expected(PlanError, "sequences", "different sequences", list(sequences))
        pieces = [(s, piece) for s in sequences for piece in self._pieces(0, self.tokens(s))]
        if nodes := [chunk.node for sequence in sequences for chunk in self._chunks[sequence]]:
            self.cache.prune(*nodes)
        for sequence, (number, low, high) in pieces:
            self._free[(sequence + number) % self._group.size] += self._pages(high) - self._pages(low)
        for sequence in sequences:
            del self._chunks[sequence], self._tokens[sequence]

    def tokens(self, sequence: int) -> int:
        """Return the number of tokens of a sequence, on all ranks together."""
        self._settle()
        if sequence not in self._tokens:
            raise expected(PlanError, "sequence", "the number of a living sequence", sequence)
        return self._tokens[sequence]

    def _pieces(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return chunks that hold some of the tokens [begin, end): their number, and the range within them."""
        numbers = range(begin // self.chunk, -(-end // self.chunk)) if begin < end else ()
        return [
            (number, max(begin - number * self.chunk, 0), min(end - number * self.chunk, self.chunk))
            for number in numbers
        ]

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.cache.page_size)

    def _chunk(self, sequence: int, number: int) -> _Chunk:
        return next(chunk for chunk in reversed(self._chunks[sequence]) if chunk.number == number)

    def _node(self, sequence: int, number: int) -> int:
        chunks = self._chunks[sequence]
        if not chunks or chunks[-1].number != number:
            chunks.append(_Chunk(number, self.cache.add()))
        return chunks[-1].node

    # --- Running ---------------------------------------------------------------------------------------------

    def plan(self, kernel: Kernel, requests: Sequence[int | tuple[int, int]], **options: Any) -> ShardedPlan:
        """Plan a step. A request is a sequence for its last token, or (sequence, rows) for its last rows. `kernel`: of one
        operand Paged with the cache's page_size and formats, on the cache's device. `options`: of Kernel.plan."""
        return ShardedPlan(self, kernel, requests, options)

    def _tables(self, name: str, requests: Sequence[int | tuple[int, int]]) -> dict[str, numpy.ndarray]:
        starts, positions, parts = [0], [], []
        for request in requests:
            sequence, rows = request if isinstance(request, tuple) else (request, 1)
            end = self.tokens(sequence)
            if not 0 <= rows <= end:
                raise expected(
                    PlanError, "requests", f"at most the {end} tokens of sequence {sequence}", rows
                )
            positions.append(numpy.arange(end - rows, end))
            starts.append(starts[-1] + rows)
            parts += [
                (chunk, starts[-2], starts[-1]) for chunk in self._chunks[sequence] if chunk.tokens and rows
            ]
        pages = [self._table(chunk) for chunk, _, _ in parts]
        table = numpy.zeros((len(parts), max(map(len, pages), default=1)), numpy.int32)
        for row, found in zip(table, pages, strict=True):
            row[: len(found)] = found
        return {
            "q_start": numpy.array(starts, numpy.int32),
            "q_pos": numpy.concatenate(positions).astype(numpy.int32),
            f"{name}.block_table": table,
            f"{name}.lengths": numpy.array([chunk.tokens for chunk, _, _ in parts], numpy.int32),
            f"{name}.pos0": numpy.array([chunk.number * self.chunk for chunk, _, _ in parts], numpy.int32),
            f"{name}.rows": numpy.array([(a, b) for _, a, b in parts], numpy.int32).reshape(-1, 2),
        }

    def _table(self, chunk: _Chunk) -> numpy.ndarray:
        if len(chunk.pages) != self._pages(chunk.tokens):
            page = self.cache.page_size
            chunk.pages = (self.cache.slots(chunk.node)[::page] // page).astype(numpy.int32)
        return chunk.pages

    def __repr__(self) -> str:
        return (
            f"<attn.distributed.ShardedCache of {len(self._tokens)} sequences over {self._group.size} ranks, in chunks of "
            f"{self.chunk} tokens; free pages {self._free}>"
        )


class ShardedChange:
    """New tokens of a ShardedCache, whose keys and values are still to be written in every layer."""

    def __init__(self, cache: PagedCache, change: Any, rows: int, own: numpy.ndarray, written: _Written):
        self._cache, self._change, self._own, self._written = cache, change, torch.from_numpy(own), written
        self.rows = rows
        """The number of new tokens, on all ranks together."""

    def write(self, layer: int, k: Tensor, v: Tensor | None = None) -> None:
        """Write a layer's new keys and values, [rows, kv_heads, head_dim] and [rows, kv_heads, value_dim] with the tokens of
        all ranks; this rank writes its own. A cache of latents takes no `v`. Raises TensorError or PlanError, on every rank."""
        layer = self._begin(layer)
        given = self._checked(layer, k, v, self.rows, "new tokens of all ranks")
        if self._change is not None:
            self._own = self._own.to(k.device)
            self._change.write(layer, *(tensor.index_select(0, self._own) for tensor in given))
        self._end(layer)

    def write_own(self, layer: int, k: Tensor, v: Tensor | None = None) -> None:
        """Write a layer's new keys and values of this rank alone: the rows of its chunks, in their order. Raises TensorError or
        PlanError."""
        layer = self._begin(layer)
        given = self._checked(layer, k, v, len(self._own), "new tokens of this rank")
        if self._change is not None:
            self._change.write(layer, *given)
        self._end(layer)

    def skip(self) -> None:
        """Declare that the caller writes the keys and values of this rank's tokens itself, to the pages of
        `ShardedCache.cache`."""
        self._check_alive()
        if self._change is not None:
            self._change.skip()
        self._written.missing.clear()

    def _check_alive(self) -> None:
        if self._written.taken_back:
            raise PlanError(
                f"change: its {self.rows} new tokens were taken back, since the cache was used after a write had failed, or "
                "rollback() was called; append them again"
            )

    def _begin(self, layer: int) -> int:
        self._check_alive()
        layer = self._cache._layer_number(layer)
        if self.rows and layer not in self._written.missing:
            raise PlanError(
                f"layer: the keys and values of this change were written before in layers {[layer]}"
            )
        self._written.failed = True  # Until the end is reached.
        return layer

    def _end(self, layer: int) -> None:
        self._written.failed = False
        self._written.missing.discard(layer)

    def _checked(self, layer: int, k: Tensor, v: Tensor | None, rows: int, what: str) -> tuple[Tensor, ...]:
        """Check rows on every rank, whether it writes some of them or not."""
        cache = self._cache
        stored = cache._stored[cache._kinds[layer] if cache._kinds else 0]
        dtype = _DTYPES[cache._dtype]
        parts = parts_of_rows(stored, k, v)
        for name, tensor, dim in parts:
            sizes = (rows, stored.kv_heads, dim)
            if (
                not isinstance(tensor, Tensor)
                or tuple(tensor.shape) != sizes
                or tensor.dtype != dtype
                or device_of(tensor) != cache.device
            ):
                legal = f"{str(dtype).removeprefix('torch.')} {list(sizes)} on {cache.device}, the {what}"
                raise expected(TensorError, name, legal, tensor)
        return tuple(tensor for _, tensor, _ in parts)  # type: ignore[misc]


class ShardedPlan:
    """A step over a ShardedCache; `ShardedCache.plan` returns it. One plan serves every layer."""

    def __init__(self, cache: ShardedCache, kernel: Kernel, requests: Sequence, options: dict):
        operands = [each for each in kernel.manifest["arguments"] if each["role"] == "kv"]
        if len(operands) != 1 or operands[0]["store"] != "paged":
            raise expected(PlanError, "kernel", "one operand, attn.Paged", kernel)
        self._cache, self.kernel, self._name = cache, kernel, operands[0]["name"]
        self._options = options
        self.plan: Plan | None = None
        """This rank's plan; None if it has no token of the step's sequences."""
        self.update(requests)

    def update(self, requests: Sequence[int | tuple[int, int]]) -> None:
        """Plan the next step, of the same or other sequences."""
        cache = self._cache
        tables = cache._tables(self._name, requests)
        self.rows = int(tables["q_start"][-1])
        """The number of query rows."""
        if not len(tables[f"{self._name}.lengths"]):
            self.plan = None
            return
        stored = {f"{self._name}.{name}": tensor for name, tensor in cache.cache.layer(0).tensors().items()}
        batch = {"q": self._q(), **stored, **tables}
        if self.plan is None:
            self.plan = self.kernel.plan(batch, **self._options)
        else:
            self.plan.update(batch)

    def _q(self) -> tuple:
        binding = self.kernel._tensors["q"]
        heads, dim = binding.dims[1:]
        return _DTYPES[binding.dtype], (self.rows, heads, dim)

    def run(self, q: Tensor, layer: int, *, return_lse: bool = False, partial: Partial | None = None) -> Any:
        """Compute a layer of the step: attention to this rank's tokens, one all-gather, one merge.

        q         [rows, q_heads, head_dim], the same on every rank
        partial   memory that captured steps keep: attn.distributed.Partial(rows, q_heads, value_dim, q). With
                  Partial.shared(rows, q_heads, value_dim, q, group) one kernel exchanges and merges the results, where ranks
                  reach each other's memory

        Returns out [rows, q_heads, value_dim], or (out, lse), the same on every rank. Raises TensorError, GroupError.
        """
        dtype, shape = self._q()
        if not isinstance(q, Tensor) or tuple(q.shape) != shape or q.dtype != dtype:
            raise expected(TensorError, "q", f"{str(dtype).removeprefix('torch.')} {list(shape)}", q)
        if partial is None:
            partial = Partial(*shape[:2], self._cache.cache.value_dim, q)
        if self.plan is None:
            partial.clear()
        else:
            stored = tuple(self._cache.cache.layer(layer).tensors().values())
            self.kernel.run(q, stored, self.plan, out=partial.out, lse=partial.lse, return_lse=True)
        out, lse = partial.merged(self._cache._group, return_lse=return_lse)
        return (out, lse) if return_lse else out
