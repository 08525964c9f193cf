# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One layer of a paged cache, as Kernel.run takes it."""

from __future__ import annotations

from typing import Any

import numpy

from ..errors import PlanError, TensorError, Uncopied, expected
from ..memory.views import NOTHING, View
from ..run.plan import Plan
from .pages import Run, take
from .state import CacheState


class CacheLayer(Uncopied):
    """Keys and values of one layer, for Kernel.run instead of all operands."""

    _instead = "it shows the pages of its cache; ask for PagedCache.layer again"

    def __init__(self, cache: CacheState, index: int):
        self.cache: Any = cache
        """The PagedCache that made it."""
        self.index = index
        self._found: dict[tuple, list[View]] = {}

    def __repr__(self) -> str:
        return f"<attn.CacheLayer {self.index} of {self.cache!r}>"

    def _run(self, head_class: int | None) -> Run:
        kinds = self.cache._kinds
        own = kinds[self.index] if kinds else 0
        count = len(self.cache._classes)
        if head_class is not None and not (
            isinstance(head_class, (int, numpy.integer)) and 0 <= head_class < count
        ):
            raise expected(TensorError, "head_class", f"None or a number from 0 to {count - 1}", head_class)
        if kinds and head_class not in (None, own):
            names = [each.name for each in self.cache._classes]
            raise TensorError(
                f"operands: layer {self.index} is of {names[own]}, and {names[head_class]} is asked for"
            )
        runs = self.cache._runs[own if head_class is None else head_class]
        return next(run for run in reversed(runs) if run.first <= self.index)

    @property
    def k(self) -> Any:
        """Keys, [pages, page_size, kv_heads, head_dim], the pages themselves; quantized with metadata by line [pages,
        kv_heads, page_size, bytes]; of several classes the first one's, of several kinds of layers the layer's."""
        return self.keys()

    @property
    def v(self) -> Any:
        """Values, [pages, page_size, kv_heads, value_dim], or as `k`."""
        return self.values()

    def keys(self, head_class: int | None = None) -> Any:
        """Return the keys of a class with a store of its own."""
        run = self._run(head_class)
        return run.k[self.index - run.first]

    def values(self, head_class: int | None = None) -> Any:
        """Return the values of a class with a store of its own."""
        run = self._run(head_class)
        return run.v[self.index - run.first]

    def tensors(self, head_class: int | None = None) -> dict[str, Any]:
        """Return all tensors of a class's store, by the part of kernels' names after the operand's: k_pages, v_pages,
        and if quantized their metadata (k_meta, v_scales, …). Scales per tensor or head are 1 until they are written
        here."""
        run = self._run(head_class)
        return {name: tensor[self.index - run.first] for name, tensor in run.tensors.items()}

    def stored(self, node: int, head_class: int | None = None) -> dict[str, Any]:
        """Return a copy of the stored tokens of a node: `k`, `v` [tokens, heads, …], and if quantized their metadata,
        by line [tokens, heads, …], as attn.dequantize takes them. Tensors are PyTorch's if the cache's memory is."""
        kinds = self.cache._kinds
        own = head_class if head_class is not None else kinds[self.index] if kinds else 0
        slots = self.cache.slots(node, own)
        if (slots < 0).any():
            raise PlanError(
                f"node: {int((slots < 0).sum())} of its tokens were given back by a streaming class"
            )
        found, page = {}, self.cache.page_size
        heads_first = self._run(head_class).heads_first
        for name, tensor in self.tensors(head_class).items():
            part, _, rest = name.partition("_")
            kept = part if rest == "pages" else name
            if rest != "pages" and len(tensor.shape) < 3:  # Scales of a head, or of all heads.
                found[kept] = take(tensor, slice(None))
            elif heads_first:
                found[kept] = take(tensor, slots // page, slots % page)
            else:
                found[kept] = take(tensor.reshape(-1, *tensor.shape[2:]), slots)
        return found

    def _views(self, plan: Plan) -> list[View]:
        """Return keys, values and their metadata for each operand of the plan's kernel."""
        batch: Any = plan.batch
        if getattr(batch, "cache", None) is not self.cache:
            raise TensorError(
                "operands: this layer is of another cache than the one that the plan was made from"
            )
        operands = batch._shown_to(plan)
        found = self._found.get(operands)
        if found is None:
            found = self._found[operands] = [
                of_part
                for operand, parts in zip(operands, plan.kernel._parts.values(), strict=True)
                for of_part in (
                    (NOTHING,) * len(parts)
                    if operand is None
                    else self._run(operand[0]).views_at(self.index, operand[3])
                )
            ]
        return found
