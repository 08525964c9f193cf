# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plan: one batch's work, cut into equal shares, with all device memory that it needs."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _attn
from ..errors import PlanError, TensorError, Uncopied, expected
from ..memory.devices import failed
from ..memory.tables import int32_array
from ..memory.tensors import empty
from ..memory.views import View
from .code import Code
from .prepared import Prepared

_handles = itertools.count(1)
_living: weakref.WeakValueDictionary[int, Plan] = weakref.WeakValueDictionary()


class Plan(Uncopied):
    """One batch's work on a device; `Kernel.plan` returns it.

    One plan serves every layer: layers differ only in the addresses of keys and values. For the next decoding step
    `update` the plan instead of making another."""

    _instead = "it owns memory of its device; make another with Kernel.plan, from the same batch"

    def __init__(self, kernel: Code, batch: object, prepared: Prepared, native: _attn.Plan):
        self.kernel: Any = kernel
        """The Kernel that made it."""
        self.handle = next(_handles)
        """A number that stands for the plan in compiled code, in this process, for as long as the plan lives."""
        _living[self.handle] = self
        self._native = native
        self.used = 0
        self._spare: dict[tuple, object] = {}
        self._launches = _attn.Launches()
        """Launches of its runs (Kernel.run)."""
        self._sizes: dict[str, int] | None = None
        self._classes: tuple[int, ...] = ()
        self._settle(batch, prepared)

    def _settle(self, batch: object, prepared: Prepared) -> None:
        self.batch = batch
        self._prepared = prepared
        self._order = prepared.order
        if prepared.sizes == self._sizes and prepared.classes == self._classes:
            return
        self._sizes, self._classes = prepared.sizes, prepared.classes
        self._accepted: dict[
            tuple, tuple
        ] = {}  # Bytes and strides of each binding, by the tensors' signatures.
        self._launches.clear()
        self._class_views: dict[tuple[int, ...], View] = {}
        self._shapes = {
            binding.name: tuple(prepared.sizes.get(dim, dim) for dim in binding.dims)
            for binding in self.kernel._bindings
            if binding.written
        }

    @property
    def rows(self) -> int:
        """The number of query rows of the batch, over all sequences."""
        return self._native.rows

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the tensors that a run binds."""
        return self._native.slots

    def update(self, batch: object = None, *, stream: object = None) -> bool:
        """Plan the next step: of the plan's batch, after the batch's own `update`, or of another batch. True if tasks
        were kept and only read further tokens; their order, and so the bits of results, then stay. Allocates nothing if
        the batch is no larger. PlanError if the batch is not of this kernel's description, or does not fit a fixed
        plan; the plan, and what a graph replays, is then unchanged."""
        batch = self.batch if batch is None else batch
        prepared = self.kernel._prepare(batch)
        try:
            extended = self._native.update(prepared.native, stream=self.kernel._stream(stream))
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        if batch is not self.batch or prepared != self._prepared:
            self._settle(batch, prepared)
        return extended

    def _grow(self, tokens: int, apart: int, stream: int) -> None:
        """Grow a batch of tensors with one packed operand: each instance has `tokens` more, instances are `apart`
        tokens apart, and positions of rows move by as many. The plan then has no batch in Python, until it gets one."""
        try:
            self._native.grow(tokens, apart, stream)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        self.batch = self._prepared = self._sizes = None
        self._accepted = {}
        self._launches.clear()

    def fix(self) -> None:
        """Make launches depend only on the contents of buffers from now on, as CUDA graphs need it: runs may be
        captured, and an update that does not fit is refused by the name of the limit. Give Kernel.plan `limits` of the
        largest batch to come, including `pages` of the longest sequence."""
        try:
            self._native.fix()
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def explain(self) -> str:
        """Return a page of text: tasks, bytes, FLOPs, balance, and the roofline's time on an H200."""
        return self._native.explain()

    def svg(self) -> str:
        """Return a picture as SVG text: the tokens that rows see, and the work of every block."""
        return self._native.svg()

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return self.svg()

    def draw(self, path: str | os.PathLike) -> Path:
        """Write the picture to an SVG file; returns its path. PlanError for another suffix."""
        path = Path(path)
        if path.suffix != ".svg":
            raise PlanError(
                f"path: expected a name that ends with .svg, got {str(path)!r}; nearest legal: "
                f"{str(path.with_suffix('.svg'))!r}"
            )
        path.write_text(self.svg(), encoding="utf-8")
        return path

    @property
    def stats(self) -> dict[str, float | int]:
        """Bytes (kv_bytes, q_bytes, partial_bytes, metadata_bytes, output_bytes), tasks, cuts, blocks, used_blocks,
        balance (largest share over the mean), flops, seconds (predicted for an H200), extended (updates since the plan
        was made anew)."""
        return self._native.stats()

    # --- For Kernel.run --------------------------------------------------------------------------------------

    def _empty(self, name: str, like: object) -> object:
        """Return memory for a result, of q's library and on q's device."""
        return empty(like, self._shapes[name], self.kernel._tensors[name].dtype)

    def _spare_lse(self, like: object) -> object:
        """Return memory for an LSE that the caller does not want."""
        key = type(like), getattr(like, "device", None), self._shapes["lse"]
        spare = self._spare.get(key)
        if spare is None:
            spare = self._spare[key] = self._empty("lse", like)
        return spare

    def _view_classes(self, classes: Sequence[int] | None) -> View:
        """Return the heads in the plan's order, for a layer; made once for each assignment of classes."""
        if classes is None:
            classes = self._classes
        elif type(classes) is not tuple:
            classes = tuple(int32_array("classes", classes).tolist())
        found = self._class_views.get(classes)
        if found is None:
            if self.kernel._plans_by_head and classes != self._classes:
                legal = f"those of the plan, as each head has lengths of its own, {list(self._classes)}"
                raise expected(
                    TensorError, "classes", legal, list(classes), hint="Make a plan for each layer"
                )
            if sorted(classes) != sorted(self._classes):
                legal = f"as many heads of each class as the plan was made for, as {list(self._classes)}"
                raise expected(TensorError, "classes", legal, list(classes))
            found = self._class_views[classes] = self.kernel._ordinal_heads(classes)
        return found

    def __repr__(self) -> str:
        stats = self.stats
        return (
            f"<attn.Plan of {self.kernel.entry}: {self.rows} rows, {stats['tasks']} tasks on {stats['blocks']} blocks, "
            f"balance {stats['balance']:.2f}>"
        )


def living_plan(handle: int) -> Plan:
    """Return the plan of a handle. PlanError if it no longer exists."""
    try:
        return _living[handle]
    except KeyError:
        raise PlanError(
            f"plan: expected the handle of a living plan of this process, got {handle}; an exported program cannot take "
            "a plan along"
        ) from None
