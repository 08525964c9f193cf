# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New tokens of a paged cache, on their way into its pages."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from .. import _attn
from ..errors import PlanError, TensorError, Uncopied, expected
from ..memory.devices import stream_number
from ..memory.tables import int32_array
from .appender import (
    NewTokens,
    check_positions,
    make_list,
    new_rows,
    on_device,
    read_positions,
    room_for,
)
from .pages import look_rows, parts_of_rows, take_heads
from .rope import Norm, Rope
from .state import CacheState


class CacheChange(Uncopied):
    """New tokens that have pages, and whose keys and values are still to be written: all layers before the next change.

    The cache takes the tokens back if nothing refers to the change any more before that. It also takes them back if a
    `write` raised an error, and the cache was used before the write was repeated.
    """

    _instead = "its tokens are written once; write them, and append to the cache for others"

    def __init__(
        self,
        cache: CacheState,
        movement: _attn.Movement,
        runs: Sequence[tuple[int, int]] = (),
        draft: tuple[int, Sequence[int]] | None = None,
    ):
        self._cache = cache
        self._movement = movement
        self._runs = runs
        """Nodes with new tokens, and the number of those, in the order of rows."""
        self._draft = draft
        """A leaf, and the token before each of its draft."""
        self._lists: dict[object, Any] = {}
        """Slots by class, and positions, on the device."""
        self._most = -1  # The last of those positions.
        self._missing = set(range(cache.layers)) if movement.rows else set()
        if movement.rows:
            cache._unwritten = weakref.ref(self)

    @property
    def rows(self) -> int:
        """The number of new tokens."""
        return self._movement.rows

    @property
    def missing(self) -> list[int]:
        """Layers whose keys and values are still to be written."""
        return sorted(self._missing)

    def slots(self, head_class: int = 0) -> numpy.ndarray:
        """Return the slot of each new token, for callers that write keys and values themselves: page * page_size +
        index in the page, int64; -1 if the class does not keep the token."""
        found = numpy.full(self.rows, -1, numpy.int64)
        for of_class, row, page, place, count in self._movement.writes:
            if of_class == head_class:
                begin = page * self._cache.page_size + place
                found[row : row + count] = numpy.arange(begin, begin + count)
        return found

    @property
    def positions(self) -> numpy.ndarray:
        """The position of each new token in its sequence, int32 [rows]."""
        cache = self._cache
        found = [numpy.arange(n, dtype=numpy.int32) + cache.tokens(node) - n for node, n in self._runs]
        if self._draft is not None:
            leaf, parents = self._draft
            depths: list[int] = []
            for parent in parents:
                depths.append(depths[parent] + 1 if parent >= 0 else 0)
            found.append(numpy.array(depths, numpy.int32) + numpy.int32(cache.tokens(leaf)))
        return numpy.concatenate(found) if found else numpy.empty(0, numpy.int32)

    def write(
        self,
        layer: int,
        k: object,
        v: object = None,
        *,
        q: object = None,
        out: object = None,
        rope: Rope | None = None,
        norm: Norm | None = None,
        positions: object = None,
        classes: Sequence[int] | None = None,
        stream: object = None,
    ) -> Any:
        """Write a layer's new keys and values, [rows, kv_heads, head_dim] and [rows, kv_heads, value_dim], on the
        cache's device; a quantized cache quantizes them, and a latent one takes no `v`. One launch also normalizes and
        rotates keys, and queries:

        rope, norm  what is done to each head, the norm first. Rows may then be slices of a fused projection; without
                    them, keys and values are contiguous. A norm of latents is that of their values
        q           queries of the new tokens, [rows, q_heads, head_dim]; of latents the features that turn, [rows, q_heads,
                    rope.rotary_dim], whose heads may lie apart
        out         where prepared queries are written: as q, or q itself; by default a new tensor
        positions   int32 or int64 [rows]; by default `positions`. On a GPU, one past the tables reads their last row
        classes     of each KV head in this layer, if classes have stores of their own

        Returns the prepared queries, or None without q. Raises TensorError or PlanError."""
        layer = self._cache._layer_number(layer)
        if rope is None and norm is None and q is None:
            return self._write(layer, 1, k, v, (), classes, stream)
        return self._prepare(layer, k, v, q, out, rope, norm, positions, classes, stream)

    def write_all(
        self,
        k: object,
        v: object = None,
        *,
        classes: Sequence[int] | None = None,
        stream: object = None,
    ) -> None:
        """Write all layers at once: [layers, rows, kv_heads, head_dim]."""
        self._write(0, self._cache.layers, k, v, (self._cache.layers,), classes, stream)

    def skip(self) -> None:
        """Declare that the caller writes the keys and values itself, to `slots` of `cache.layer(i).k` and `.v`."""
        self._check_alive()
        self._missing.clear()
        self._settle()

    def _check_alive(self) -> None:
        if self._movement.taken_back:
            raise PlanError(
                f"change: its {self.rows} new tokens were taken back, since the cache was used after a write had failed, or "
                "rollback() was called; append them again"
            )

    def _settle(self) -> None:
        if not self._missing:
            self._cache._native.close(self._movement)

    def _write(self, first: int, layers: int, k, v, front: tuple, classes, stream) -> None:
        self._check_alive()
        self._movement.failed = True  # Until the end is reached.
        self._move_rows(first, layers, k, v, front, classes, stream)
        self._movement.failed = False
        self._missing -= set(range(first, first + layers))
        self._settle()

    def _move_rows(self, first: int, layers: int, k, v, front: tuple, classes, stream) -> None:
        cache, keep = self._cache, []
        done = sorted(set(range(first, first + layers)) - self._missing)
        if self.rows and done:
            raise PlanError(f"layer: the keys and values of this change were written before in layers {done}")
        number = stream_number(cache.device, stream)
        moves = []
        for index, of_class in self._heads(first, layers, classes).items():
            views, stored = [], cache._stored[index]
            for name, tensor, dim in parts_of_rows(stored, k, v):
                sizes = (*front, self.rows, stored.kv_heads, dim)
                shape = cache._runs[index][0].shape
                found = look_rows(name, tensor, sizes, shape, number, keep)
                if of_class is not None:
                    tensor = take_heads(name, tensor, of_class, len(front) + 1)
                    keep.append(tensor)
                    found = look_rows(name, tensor, (*sizes[:-2], len(of_class), dim), shape, number, keep)
                views.append(found)
            for run in cache._runs[index]:
                begin, end = max(first, run.first), min(first + layers, run.first + run.layers)
                if begin < end:
                    size = [self.rows * n * (begin - first) for n in run.row_bytes]
                    moves.append(
                        (
                            run,
                            index,
                            begin,
                            end - begin,
                            [(at[0] + n, at[1]) for at, n in zip(views, size, strict=True)],
                        )
                    )
        for run, index, begin, count, rows in moves:
            run.move(self._movement, index, begin, count, tuple(rows), number)

    def _prepare(self, layer, k, v, q, out, rope, norm, positions, classes, stream) -> Any:
        cache = self._cache
        self._check_alive()
        if self.rows and layer not in self._missing:
            raise PlanError(
                f"layer: the keys and values of this change were written before in layers {[layer]}"
            )
        number = stream_number(cache.device, stream)
        launches, keep = [], []  # type: ignore[var-annotated]
        of_classes = self._heads(layer, 1, classes)
        counts = [len(heads) for heads in of_classes.values() if heads]
        out, queries = self._split_queries(q, out, counts)
        for index, heads in of_classes.items():
            run = next(each for each in cache._runs[index] if each.first <= layer < each.first + each.layers)
            if not run.heads:
                continue
            parts = [k, v] if heads is None else [take_heads(n, x, heads, 1) for n, x in (("k", k), ("v", v))]
            keep.append(parts)
            share = next(queries, (None, None))
            tokens = NewTokens(run.heads, run.shape, self.rows, *parts, *share, rope, norm, number)
            launches.append((index, run, tokens))
        if rope is not None and self.rows:
            where = self._positions_on_device(rope, positions, stream)
            for _, _, tokens in launches:
                tokens.use_positions(where)
        self._movement.failed = True  # Until the end is reached.
        for index, run, tokens in launches:
            if self.rows:
                room = room_for(self.rows)
                tokens.use_list(self._list(index, room, stream))
                tokens.write(run.pages_of(layer), room)
        self._movement.failed = False
        self._missing.discard(layer)
        self._settle()
        return out if len(counts) > 1 else launches[0][2].out

    def _split_queries(self, q: Any, out: Any, counts: list[int]) -> tuple[Any, Iterator[tuple[Any, Any]]]:
        """Split q and out by head class; returns out and the parts. A class has so many KV heads, and gets as many query heads
        for each of them as `q` has for each KV head in all."""
        if len(counts) < 2 or q is None:
            return out, iter([(q, out)])
        total, shape = sum(counts), tuple(getattr(q, "shape", ()))
        if len(shape) != 3 or shape[1] % total:
            legal = f"[{self.rows}, a multiple of {total} heads, {self._cache.head_dim}]"
            raise expected(TensorError, "q", legal, q)
        if out is None:
            out = new_rows(q, (self.rows, *shape[1:]))
        elif tuple(getattr(out, "shape", ()))[1:] != shape[1:]:
            raise expected(TensorError, "out", f"[{self.rows}, {shape[1]}, {shape[2]}], as q", out)
        ends = [shape[1] // total * sum(counts[: i + 1]) for i in range(len(counts))]
        parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        return out, iter([(q[:, part], out[:, part]) for part in parts])

    def _positions_on_device(self, rope: Rope, positions: object, stream: object) -> Any:
        if positions is not None:
            return read_positions(rope, positions, self.rows, self._cache.device)
        if "positions" not in self._lists:
            own = self.positions
            self._most = int(own.max())
            self._lists["positions"] = on_device(own, self._cache.device, stream)
        check_positions(rope, 0, self._most)
        return self._lists["positions"]

    def _list(self, head_class: int, room: int, stream: object) -> Any:
        """Return the slots of a class, as an Appender takes them; made once for all layers."""
        if head_class not in self._lists:
            words = make_list(self.slots(head_class), room)
            self._lists[head_class] = on_device(words, self._cache.device, stream)
        return self._lists[head_class]

    def __repr__(self) -> str:
        if self._movement.taken_back:
            state = "taken back"
        elif not self._missing:
            state = "written"
        elif len(self._missing) == self._cache.layers:
            state = "not written"
        else:
            state = f"not written in layers {sorted(self._missing)}"
        return f"<attn.CacheChange of {self.rows} new tokens: {state}>"

    def _heads(self, first: int, layers: int, classes: Sequence[int] | None) -> dict[int, list[int] | None]:
        """Return the KV heads of each class that these layers have, in order; None: all of them."""
        cache = self._cache
        if not cache._own_stores or cache._kinds:
            if classes is not None:
                raise PlanError("classes: this cache has one store for all heads of a layer")
            kinds = sorted(set(cache._kinds[first : first + layers])) or [0]
            if len(kinds) > 1:
                names = ", ".join(cache._classes[index].name for index in kinds)
                raise PlanError(
                    f"layers: expected layers of one kind, got {names}: write each layer by `write`"
                )
            return {kinds[0]: None}
        if classes is None:
            raise PlanError(
                "classes: expected the class of each KV head, since classes have stores of their own"
            )
        classes = int32_array("classes", classes).tolist()
        found = [[h for h, c in enumerate(classes) if c == i] for i in range(len(cache._classes))]
        for layer in range(first, first + layers):
            legal = [c.heads[layer] for c in cache._classes]
            if len(classes) != cache._stored[0].kv_heads or [len(heads) for heads in found] != legal:
                text = ", ".join(f"{n} of {c.name}" for n, c in zip(legal, cache._classes, strict=True))
                raise expected(
                    PlanError,
                    "classes",
                    f"the classes of {cache._stored[0].kv_heads} heads, {text} in layer {layer}",
                    classes,
                )
        return dict(enumerate(found))
