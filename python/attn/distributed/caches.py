# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache of keys and values of which every rank keeps a part of the tokens.

A sequence is cut into chunks of equally many tokens, which ranks take in turns. A chunk on a rank is an instance of its
own: its first token has a position, and the rows of its sequence see it. So windows, sinks and several rows a sequence
are exact, and a rank plans and runs its chunks as it would plan any batch. One collective and one merge follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from ..cache.integers import integers, whole
from ..cache.paged import PagedCache
from ..errors import OutOfPages, PlanError, TensorError, Uncopied, expected
from ..run.kernel import Kernel
from ..run.plan import Plan
from .groups import agree
from .states import Partial, _one


class _Chunk:
    """A chunk that this rank keeps."""

    def __init__(self, number: int, node: int):
        self.number, self.node, self.tokens = number, node, 0
        self.pages = numpy.zeros(0, numpy.int32)


class ShardedCache(Uncopied):
    """A paged cache over several ranks, each of which has `pages` pages and keeps every n-th chunk of a sequence.

    pages     of each rank; the tokens of a page lie on one rank
    chunk     tokens of a chunk, a multiple of page_size; by default 64 pages. Chunk c of sequence s lies on rank
              (s + c) modulo the ranks
    group     as of `attend`, of one dimension
    options   of attn.PagedCache: layers, kv_heads, head_dim, page_size, dtype, formats of keys and values, latents, device

    All ranks make the same calls with the same arguments. Keys and values of new tokens are given on every rank, and each
    writes its own. Raises PlanError, OutOfPages (on every rank, if one rank has too few pages), TensorError.
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
        self._free = free
        for sequence, count in zip(numbers, counts, strict=True):
            self._tokens[sequence] += count
        for sequence, number, count, _ in pieces:
            self._chunk(sequence, number).tokens += count
        rows = [numpy.arange(offset, offset + count) for _, _, count, offset in pieces]
        return ShardedChange(change, first, numpy.concatenate(rows) if rows else numpy.zeros(0, numpy.int64))

    def prune(self, *sequences: int) -> None:
        """Remove sequences, and free their pages on every rank."""
        for sequence in sequences:
            for number, low, high in self._pieces(0, self.tokens(sequence)):
                self._free[(sequence + number) % self._group.size] += self._pages(high) - self._pages(low)
            nodes = [chunk.node for chunk in self._chunks.pop(sequence)]
            if nodes:
                self.cache.prune(*nodes)
            del self._tokens[sequence]

    def tokens(self, sequence: int) -> int:
        """Return the number of tokens of a sequence, on all ranks together."""
        if sequence not in self._tokens:
            raise expected(PlanError, "sequence", "the number of a living sequence", sequence)
        return self._tokens[sequence]

    def _pieces(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return chunks that hold some of the tokens [begin, end): their number, and the range within them."""
        return [
            (number, max(begin - number * self.chunk, 0), min(end - number * self.chunk, self.chunk))
            for number in range(begin // self.chunk, -(-end // self.chunk))
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

    def __init__(self, change: Any, rows: int, own: numpy.ndarray):
        self._change, self.rows, self._own = change, rows, torch.from_numpy(own)
        """`rows`: the number of new tokens, on all ranks together."""

    def write(self, layer: int, k: Tensor, v: Tensor | None = None) -> None:
        """Write a layer's new keys and values, [rows, kv_heads, head_dim] and [rows, kv_heads, value_dim] with the tokens of
        all ranks; this rank writes its own. A cache of latents takes no `v`. TensorError."""
        given = {"k": k} if v is None else {"k": k, "v": v}
        for name, tensor in given.items():
            if len(tensor) != self.rows:
                raise expected(TensorError, name, f"the {self.rows} new tokens of all ranks", tensor)
        if self._change is not None:
            self._own = self._own.to(k.device)
            self._change.write(layer, *(tensor.index_select(0, self._own) for tensor in given.values()))

    def write_own(self, layer: int, k: Tensor, v: Tensor | None = None) -> None:
        """Write a layer's new keys and values of this rank alone: the rows of its chunks, in their order. TensorError."""
        for name, tensor in ({"k": k} if v is None else {"k": k, "v": v}).items():
            if len(tensor) != len(self._own):
                raise expected(TensorError, name, f"the {len(self._own)} new tokens of this rank", tensor)
        if self._change is not None:
            self._change.write(layer, *((k,) if v is None else (k, v)))

    def skip(self) -> None:
        """Declare that the caller writes the keys and values of this rank's tokens itself, to the pages of
        `ShardedCache.cache`."""
        if self._change is not None:
            self._change.skip()


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
        return {"bf16": torch.bfloat16, "f16": torch.float16}[binding.dtype], (self.rows, heads, dim)

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
