# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of a cache: sizes, head classes, the memory of their pages, and the owner of each page.

Batches, changes and layers read it; PagedCache (paged.py) makes all three, and changes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from .. import _attn
from ..errors import OutOfPages, PlanError, Uncopied, expected
from ..memory.devices import device_name, failed
from ..memory.dtypes import DTYPES, DTypeLike
from ..memory.formats import (
    MIXED,
    PART_OF_KEY,
    First,
    Format,
    check_apart,
    check_latent_key,
    describe_store,
    part_names,
    read_format,
)
from ..memory.page_sizes import check_page_size
from .integers import integers, items, node_number, whole
from .kinds import LayerKind, Stored, check_kinds, value_dim_of
from .operations import Shape
from .pages import Run, dtype_of_cache


@dataclass(frozen=True, kw_only=True)
class CacheClass:
    """A head class with a store of its own, shown by an operand Paged(head_class=name).

    pages   of its pool
    heads   KV heads of it in each layer: a number, or one for each layer
    recent  the class keeps tokens at distance 0 <= q - k < recent, and the first `sink`; 0: it keeps all
    draft   capacity in tokens of the ring of an unbranched sequence, beyond `recent`
    """

    name: str
    pages: int
    heads: int | Sequence[int]
    recent: int = 0
    sink: int = 0
    draft: int = 0


class CacheState(Uncopied):
    """The state that PagedCache changes, and the questions to it."""

    _instead = "it owns the pages of its device; copy a sequence with PagedCache.fork, or make another cache"

    def __init__(
        self,
        *,
        layers: int | None = None,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        pages: int | None = None,
        page_size: int = 16,
        value_dim: int | None = None,
        dtype: DTypeLike = "bfloat16",
        key: str | None = None,
        value: str | First | None = None,
        key_group: int | None = None,
        value_group: int | None = None,
        key_scales: str | None = None,
        value_scales: str | None = None,
        draft_page: int | None = None,
        classes: Sequence[CacheClass] = (),
        kinds: Sequence[LayerKind] = (),
        device: object = None,
    ):
        page_size = check_page_size(PlanError, "page_size", whole("page_size", page_size, 1))
        self.page_size, self.device = page_size, device_name(device)
        self.draft_page = page_size if draft_page is None else whole("draft_page", draft_page, 1)
        self._dtype = dtype_of_cache(dtype)
        formats = {"key": (key, key_group, key_scales), "value": (value, value_group, value_scales)}
        self._kinds: tuple[int, ...] = ()
        """The class of each layer, if layers are of several kinds: a kind is a class that has no heads in others."""
        self._stored: list[Stored] = []
        """What the tokens of each class are."""
        classes = items("classes", classes)
        if kinds:
            of_all = dict(
                layers=layers, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim, pages=pages
            )
            of_all |= {name: given[0] for name, given in formats.items()} | {"classes": classes or None}
            classes = self._read_kinds(kinds, of_all)
        else:
            sizes = dict(layers=layers, kv_heads=kv_heads, head_dim=head_dim).items()
            layers, kv_heads, head_dim = (whole(name, size, 1) for name, size in sizes)
            if bool(classes) == (pages is not None):
                raise PlanError("pages: give either pages, or classes that have each their own")
            self.layers: int = layers
            one = self._read_stored(kv_heads, head_dim, value_dim, formats)
            self.kv_heads, self.head_dim, self.value_dim = one[:3]
            if pages is not None:
                classes = [CacheClass(name="kv", pages=pages, heads=kv_heads)]
            self._stored = [one] * len(classes)
        self._classes = [_checked(head_class, self.layers) for head_class in classes]
        self._own_stores = pages is None
        self.is_latent = any(stored.latent for stored in self._stored)
        """Whether values are a part of their keys, in layers of some kind."""
        torch = sys.modules.get("torch")
        self._runs = [self._allocate(*each, torch) for each in zip(self._classes, self._stored, strict=True)]
        try:
            self._native = _attn.Cache(
                page_tokens=page_size,
                draft_page=0 if self.draft_page == page_size else self.draft_page,
                classes=[(c.name, c.pages, c.recent, c.sink, c.draft) for c in self._classes],
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        except (TypeError, OverflowError):
            raise PlanError(
                "classes: names are text, and pages, recent, sink and draft whole numbers"
            ) from None
        self._layers: dict[int, object] = {}
        """The CacheLayers that were asked for."""
        self._unwritten: Callable[[], Any] = lambda: None
        """A weak reference to the last CacheChange with new tokens; `_native.is_open` says whether some are still to be
        written."""
        self._uncopied: _attn.Movement | None = None
        """Copies within the cache that have not ended."""
        self._holder: object = None
        """The CacheSteps with new tokens that launches are still to write."""

    def _read_kinds(self, given: Sequence[LayerKind], of_all: dict[str, object]) -> list[CacheClass]:
        """Read kinds of layers as classes, each of which has no heads in the layers of others."""
        if odd := [name for name, value in of_all.items() if value is not None]:
            raise PlanError(f"{odd[0]}: expected none beside kinds of layers, which have each their own")
        if self.draft_page != self.page_size:
            legal = f"page_size, {self.page_size}, beside kinds of layers"
            raise expected(PlanError, "draft_page", legal, self.draft_page, nearest=self.page_size)
        kinds, self._kinds = check_kinds(given)
        self.layers, classes = len(self._kinds), []
        self.kv_heads = self.head_dim = self.value_dim = None  # Kinds have their own.
        for index, kind in enumerate(kinds):
            sizes = kind.kv_heads, kind.head_dim, kind.value_dim
            self._stored.append(self._read_stored(*sizes, kind.formats()))
            heads = [kind.kv_heads if of == index else 0 for of in self._kinds]
            kept = dict(recent=kind.recent, sink=kind.sink, draft=kind.draft)
            classes.append(CacheClass(name=kind.name, pages=kind.pages, heads=heads, **kept))
        return classes

    def _read_stored(
        self, kv_heads: int, head_dim: int, value_dim: int | None, formats: dict[str, tuple]
    ) -> Stored:
        value, *rest = formats["value"]
        dims, latent = (head_dim, value_dim_of(head_dim, value, value_dim)), isinstance(value, First)
        if latent:
            check_latent_key("key", formats["key"][0], dims[1], PlanError)
            formats = formats | {"value": (None, *rest)}
        else:
            check_apart("value", formats["key"][0], value, PlanError)
        key, of_value = self._read_formats(formats, dims, latent)
        if key.rest and self._dtype != "bf16":
            legal = f"'bfloat16' beside key={MIXED!r}, which has features of bf16"
            raise expected(PlanError, "dtype", legal, DTYPES[self._dtype][0], nearest="bfloat16")
        per_line = not key.is_plain and not key.rest and key.per not in ("tensor", "head")
        if latent and per_line and head_dim > 256:
            legal = "'tensor' or 'head' for lines of more than 256 features"
            raise expected(PlanError, "key_scales", legal, key.per or "token", nearest="tensor")
        return Stored(kv_heads, *dims, key, key if latent else of_value, latent)

    def _read_formats(self, given: dict[str, tuple], dims: tuple[int, int], latent: bool) -> list[Format]:
        plain = Format(self._dtype)
        formats = [read_format(part_names(part), each, PlanError) or plain for part, each in given.items()]
        if all(format.is_plain for format in formats):
            return formats
        if self.draft_page != self.page_size:
            legal = (
                f"page_size, {self.page_size}, for quantized pages, whose metadata is in the order of pages"
            )
            raise expected(PlanError, "draft_page", legal, self.draft_page, nearest=self.page_size)
        try:
            found = describe_store(
                "paged",
                self.page_size,
                False,
                0,
                *dims,
                formats[0].text(),
                PART_OF_KEY if latent else formats[1].text(),
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        return [found.key, found.value]

    def _allocate(self, head_class: CacheClass, stored: Stored, torch: object) -> list[Run]:
        """Allocate memory; adjacent layers with equally many heads share a tensor."""
        shape = Shape(
            head_class.pages,
            self.page_size,
            stored.head_dim,
            stored.value_dim,
            self._dtype,
            self.device,
            stored.key,
            stored.value,
            latent=stored.latent,
        )
        runs, first = [], 0
        for layer in range(1, self.layers + 1):
            if layer == self.layers or head_class.heads[layer] != head_class.heads[first]:
                runs.append(Run(first, layer - first, head_class.heads[first], shape, torch))
                first = layer
        return runs

    @staticmethod
    def _ask(call, *arguments: object, **named: object):
        try:
            return call(*arguments, **named)
        except _attn.Failure as failure:
            raise (
                failed(failure, PlanError) if failure.kind != "memory" else OutOfPages(failure.message)
            ) from None
        except (TypeError, OverflowError) as error:
            raise PlanError(f"cache: {str(error).partition(chr(10))[0]}") from None

    def _layer_number(self, index: object) -> int:
        if not isinstance(index, (int, numpy.integer)) or not 0 <= index < self.layers:
            nearest = min(max(index, 0), self.layers - 1) if isinstance(index, int) else 0
            raise expected(
                PlanError, "layer", f"a number from 0 to {self.layers - 1}", index, nearest=nearest
            )
        return int(index)

    # --- Questions -------------------------------------------------------------------------------------------

    def contains(self, node: int) -> bool:
        """Whether the node lives. The number of a pruned node never names another node."""
        return self._ask(self._native.contains, node_number(node))

    def tokens(self, node: int) -> int:
        """Return the number of tokens of the sequence that ends with the node: its own and those above it."""
        return self._ask(self._native.position, node_number(node)) + self._ask(
            self._native.tokens, node_number(node)
        )

    def own_tokens(self, node: int) -> int:
        """Return the number of the node's own tokens."""
        return self._ask(self._native.tokens, node_number(node))

    def draft_tokens(self, node: int) -> int:
        """Return the number of tokens of the node's draft; 0 if it has none."""
        return self._ask(self._native.draft_tokens, node_number(node))

    def parent(self, node: int) -> int | None:
        """Return the node above; None for a sequence."""
        return self._ask(self._native.parent, node_number(node))

    def children(self, node: int) -> list[int]:
        """Return the nodes right below."""
        return self._ask(self._native.children, node_number(node))

    @property
    def sequences(self) -> list[int]:
        """Nodes without a parent."""
        return self._native.roots()

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in all layers: keys and values as stored, and their own metadata. A streaming class counts
        as if it kept the token."""
        return sum(run.layers * run.heads * run.head_bytes for runs in self._runs for run in runs)

    @property
    def clamped(self) -> int:
        """The number of values that were not finite when they were quantized, since the cache was made. NaN is stored
        as 0, an infinity as the largest number of its sign. Waits for work in progress."""
        return sum(run.clamped() for runs in self._runs for run in runs)

    def free_pages(self, head_class: str | None = None) -> int:
        """Return the number of free pages in the pool of a class, or of a kind of layers; by default of the first."""
        names = [c.name for c in self._classes]
        if head_class is not None and not (isinstance(head_class, str) and head_class in names):
            raise expected(PlanError, "head_class", f"one of {', '.join(names)}", head_class)
        return self._native.free_pages(names.index(head_class) if head_class is not None else 0)

    def slots(self, node: int, head_class: int = 0) -> numpy.ndarray:
        """Return the slots of the node's own tokens in each layer: page * page_size + index in the page, int64; -1 if a
        streaming class has freed a token."""
        found = numpy.full(self.own_tokens(node), -1, numpy.int64)
        for first, count, page, place in self._ask(self._native.places, node_number(node), head_class):
            begin = page * self.page_size + place
            found[first : first + count] = numpy.arange(begin, begin + count)
        return found

    def __repr__(self) -> str:
        pools = ", ".join(
            f"{c.name} {self._native.free_pages(i)} of {c.pages} pages free"
            for i, c in enumerate(self._classes)
        )
        dtype = DTYPES[self._dtype][0]
        stored = self._stored[0].said(dtype)
        if self._kinds:
            each = zip(self._classes, self._stored, strict=True)
            stored = ", ".join(
                f"{c.name} {self._kinds.count(i)} x {s.kv_heads} heads of {s.head_dim} in {s.said(dtype)}"
                for i, (c, s) in enumerate(each)
            )
        return (
            f"<attn.PagedCache of {self.layers} layers on {self.device}: {len(self.sequences)} sequences, {pools}; "
            f"{stored}, {self.token_bytes} bytes a token>"
        )


def _checked(head_class: CacheClass, layers: int) -> CacheClass:
    if not isinstance(head_class, CacheClass):
        raise expected(PlanError, "classes", "attn.CacheClass(name=..., pages=..., heads=...)", head_class)
    heads = head_class.heads
    heads = [heads] * layers if isinstance(heads, (int, numpy.integer)) else integers("heads", heads)
    if len(heads) != layers:
        raise PlanError(f"heads: expected a number, or one for each of {layers} layers, got {len(heads)}")
    heads = tuple(whole("heads", value, 0) for value in heads)
    return replace(head_class, pages=whole("pages", head_class.pages, 1), heads=heads)
