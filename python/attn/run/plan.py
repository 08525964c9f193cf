# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plan: one batch's work, cut into equal shares, with all device memory that this needs."""

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
    """Made by `Kernel.plan`. One plan serves every layer: what differs between layers is only where keys and values
    lie. A decoding step later, `update` it instead of making another."""

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
        """Runs of it (Kernel.run)."""
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
        ] = {}  # bytes and strides of each binding, by the tensors' signatures
        self._launches.clear()
        self._class_views: dict[tuple[int, ...], View] = {}
        self._shapes = {
            binding.name: tuple(prepared.sizes.get(dim, dim) for dim in binding.dims)
            for binding in self.kernel._bindings
            if binding.written
        }

    @property
    def rows(self) -> int:
        """Query rows of the batch, all sequences together."""
        return self._native.rows

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the tensors that a run binds."""
        return self._native.slots

    def update(self, batch: object = None, *, stream: object = None) -> bool:
        """The next step: of the batch that the plan was made from, after its own `update`, or of another one. True
        where tasks were kept and only read on; their order, and so the bits of results, then stay. Costs no memory
        where the batch is no larger. PlanError where the batch is not of this kernel's description, or what was fixed
        has no room for it; the plan then stays the one it was, and so does what a graph replays."""
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
        """Of a batch of tensors with one packed operand: each instance has `tokens` more, of all `apart` that it has room
        for, and each row stands so many further behind. The plan is then of no batch in Python, until it gets one."""
        try:
            self._native.grow(tokens, apart, stream)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        self.batch = self._prepared = self._sizes = None
        self._accepted = {}
        self._launches.clear()

    def fix(self) -> None:
        """From now on launches depend on the contents of buffers only, as CUDA graphs need it: runs may be captured, and
        updates that do not fit are refused, by the name of the limit. Give `limits` to Kernel.plan for the largest batch
        to come, `pages` of the longest sequence among them."""
        try:
            self._native.fix()
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def explain(self) -> str:
        """A page of text: tasks, bytes, FLOPs, balance, and the roofline's time on an H200."""
        return self._native.explain()

    def svg(self) -> str:
        """A picture: which rows see what, and what every block does."""
        return self._native.svg()

    def _repr_svg_(self) -> str:
        """What a notebook shows of a plan."""
        return self.svg()

    def draw(self, path: str | os.PathLike) -> Path:
        """Writes the picture as an SVG file."""
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
        balance (largest share over the mean), flops, seconds (predicted for an H200), extended (updates since the
        plan was made anew)."""
        return self._native.stats()

    # --- For Kernel.run --------------------------------------------------------------------------------------

    def _empty(self, name: str, like: object) -> object:
        """Memory for a result, of the library and on the device that q is of."""
        return empty(like, self._shapes[name], self.kernel._tensors[name].dtype)

    def _spare_lse(self, like: object) -> object:
        """Where the kernel may write what nobody asked for."""
        key = type(like), getattr(like, "device", None), self._shapes["lse"]
        spare = self._spare.get(key)
        if spare is None:
            spare = self._spare[key] = self._empty("lse", like)
        return spare

    def _view_classes(self, classes: Sequence[int] | None) -> View:
        """The heads in the plan's order, for a layer; made once for each that is different."""
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
    """The plan of a handle. PlanError where it is gone."""
    try:
        return _living[handle]
    except KeyError:
        raise PlanError(
            f"plan: expected the handle of a living plan of this process, got {handle}; an exported program cannot take "
            "a plan along"
        ) from None
