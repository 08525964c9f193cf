# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New tokens of a paged cache, on their way into its pages."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy

from .. import _attn
from ..errors import PlanError, Uncopied, expected
from ..memory.devices import stream_number
from ..memory.tables import int32_array
from .pages import look_rows, parts_of_rows, take_heads
from .state import CacheState


class CacheChange(Uncopied):
    """New tokens that have pages, and whose keys and values are still to be written: all layers before the next change.

    The cache takes the tokens back if nothing refers to the change any more before that. It also takes them back if a
    `write` raised an error, and the cache was used before the write was repeated.
    """

    _instead = "its tokens are written once; write them, and append to the cache for others"

    def __init__(self, cache: CacheState, movement: _attn.Movement):
        self._cache = cache
        self._movement = movement
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

    def write(
        self,
        layer: int,
        k: object,
        v: object = None,
        *,
        classes: Sequence[int] | None = None,
        stream: object = None,
    ) -> None:
        """Write a layer's new keys and values, [rows, kv_heads, head_dim] and [rows, kv_heads, value_dim], contiguous
        and on the cache's device; a quantized cache quantizes them, and a latent one takes no `v`. `classes`: of each
        KV head in this layer, if classes have stores of their own. Raises TensorError or PlanError."""
        self._write(self._cache._layer_number(layer), 1, k, v, (), classes, stream)

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
        number, parts = stream_number(cache.device, stream), parts_of_rows(cache, k, v)
        heads = self._heads(first, layers, classes)
        moves = []
        for index, of_class in enumerate(heads):
            views = []
            for name, tensor, dim in parts:
                sizes = (*front, self.rows, cache.kv_heads, dim)
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

    def _heads(self, first: int, layers: int, classes: Sequence[int] | None) -> list[list[int] | None]:
        """Return the KV heads of each class, in order; None: all of them."""
        cache = self._cache
        if not cache._own_stores:
            if classes is not None:
                raise PlanError("classes: this cache has one store for all heads")
            return [None]
        if classes is None:
            raise PlanError(
                "classes: expected the class of each KV head, since classes have stores of their own"
            )
        classes = int32_array("classes", classes).tolist()
        found = [[h for h, c in enumerate(classes) if c == i] for i in range(len(cache._classes))]
        for layer in range(first, first + layers):
            legal = [c.heads[layer] for c in cache._classes]
            if len(classes) != cache.kv_heads or [len(heads) for heads in found] != legal:
                text = ", ".join(f"{n} of {c.name}" for n, c in zip(legal, cache._classes, strict=True))
                raise expected(
                    PlanError,
                    "classes",
                    f"the classes of {cache.kv_heads} heads, {text} in layer {layer}",
                    classes,
                )
        return found
