# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory whose pages any list of tokens may take, for any head, operand or format."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy

from .. import _attn
from .._attn import Failure
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..describe.stores import Unified
from ..errors import PlanError, SpecError, TensorError, Uncopied, expected
from ..memory.devices import device_name, failed, get_device, stream_number
from ..memory.dtypes import DTYPES, DTypeLike, in_python, short_name, storage_name
from ..memory.formats import Description, Format
from ..memory.page_views import page_views, token_view
from ..memory.views import Binding, check, view_of
from .integers import integers, whole
from .operations import Shape, requantize_text
from .pages import memory_of

_UNIT = 16  # In bytes: pages are a multiple of it.


class UnifiedPages(Uncopied):
    """`pages` pages that the stores of a description share, each as long as the longest store needs.

    stores     attn.Unified(name=..., page_size=..., key=..., value=...) of different names; a page holds `page_size` tokens
               of one KV head in its store's format. Sizes that make pages equally long waste nothing
    head_dim   features of a key, `value_dim` of a value, by default as many
    dtype      of keys and values that are not quantized
    per_token  further entries of a page for each token, by name: dtypes "int32" or "float32", such as {"scores": "float32",
               "positions": "int32"}
    device     as of attn.compile; the memory is PyTorch's if it is imported, else NumPy's

    `memory` is uint8 [pages, page_bytes]; `page_bytes` is a multiple of 16. The caller's block tables assign pages to
    lists (attn.PagePool keeps such tables on a device). Raises SpecError, PlanError, TensorError.
    """

    _instead = "it owns the pages of its device; make another UnifiedPages, and copy its memory"

    def __init__(
        self,
        *stores: Unified,
        pages: int,
        head_dim: int,
        value_dim: int | None = None,
        dtype: DTypeLike = "bfloat16",
        per_token: Mapping[str, str] | None = None,
        device: object = None,
    ):
        self.pages = whole("pages", pages, 1)
        self.dims = head_dim, head_dim if value_dim is None else value_dim
        self.device = device_name(device)
        self._extra = _extra(per_token or {})
        self._found: dict[str, tuple[Unified, Description]] = {}
        kind = storage_name("dtype", dtype)
        if not stores:
            raise SpecError("stores: expected at least one attn.Unified")
        for store in stores:
            if not isinstance(store, Unified):
                raise expected(SpecError, "stores", "attn.Unified(...)", store)
            name = store.name or "kv"
            if name in self._found:
                raise expected(SpecError, "stores", "stores of different names", name)
            try:
                found = store.resolved(dtype=kind).description(1, *self.dims)
            except Failure as failure:
                raise SpecError(f"{name}: {in_python(failure.message)}") from None
            self._found[name] = store, found
        self.page_bytes = -(-max(map(self._needed, self._found)) // _UNIT) * _UNIT
        self._dtype = short_name(kind) or "bf16"
        self._kernels: dict[tuple[str | None, str], list] = {}
        self._status: _attn.Memory | None = None
        torch = sys.modules.get("torch")
        self.memory: Any = memory_of((self.pages, self.page_bytes), "u8", self.device, torch)

    def tensors(self, name: str = "kv") -> dict[str, Any]:
        """Return the tensors of a store, by their names in a batch: `name.k_pages` [pages, page_size, ...],
        `name.v_pages`, and their metadata `name.k_meta` f16 [pages, page_size, groups, 2] or `name.k_scales` f32
        [pages, page_size]. They are views of the memory."""
        _, found = self._store(name)
        return {f"{name}.{part}": view for part, view in page_views(self.memory, found).items()}

    def per_token(self, name: str = "kv") -> dict[str, Any]:
        """Return the `per_token` entries of a store, [pages, page_size] each, which follow the rest of a page."""
        store, found = self._store(name)
        views, at = {}, found.page_bytes
        for part, dtype in self._extra.items():
            views[part] = token_view(self.memory, at, dtype, (store.page_size,))
            at += store.page_size * DTYPES[dtype][1]
        return views

    def write(self, name: str, slots: object, k: object, v: object, *, stream: object = None) -> None:
        """Quantize new tokens and scatter them; numbers that are not finite are clamped, and counted.

        slots  int32 [tokens]: page * page_size + index in the page, no slot twice; a negative one is left out
        k, v   [tokens, head_dim] and [tokens, value_dim] of the dtype, contiguous, on the memory's device

        Raises TensorError, before anything is written.
        """
        found = _slots(slots, self.pages * self._store(name)[0].page_size)
        rows = self.rows(k, v, len(found))
        read = numpy.where(found < 0, -1, numpy.arange(len(found)))
        self._copy(None, name, rows, read, found, stream)

    def requantize(
        self, source: str, read: object, target: str, written: object, *, stream: object = None
    ) -> None:
        """Copy tokens of one store to another of at most as many bits. `read` and `written`: slots, int32 [tokens] each
        as of `write`; they share no page."""
        ranges = [self.pages * self._store(name)[0].page_size for name in (source, target)]
        slots = [_slots(given, most) for given, most in zip((read, written), ranges, strict=True)]
        if len(slots[0]) != len(slots[1]):
            raise expected(
                TensorError, "written", f"{len(slots[0])} slots, as many as are read", len(slots[1])
            )
        self._copy(source, target, self.addresses(source), *slots, stream)

    def clamped(self) -> int:
        """Return how many numbers that were not finite `write` has met. Waits for the device."""
        count = numpy.zeros(1, numpy.int32)
        if self._status is not None:
            self._status.copy_out(count)
        return int(count[0])

    def store(self, name: str) -> Unified:
        """Return the store of that name, with all defaults resolved."""
        return self._store(name)[0].settled(*self.dims).resolved(dtype=storage_name("dtype", self._dtype))  # type: ignore[return-value]

    def token_bytes(self, name: str) -> int:
        """Return the bytes of a token of one KV head, including metadata."""
        return self._store(name)[1].token_bytes

    def status_of(self, target: str) -> dict[str, int]:
        """Return the counter for a kernel that quantizes values of a store."""
        if self._status is None:
            self._status = get_device(self.device).allocate(16, "status")
            self._status.fill(0)
        return {} if self.shape(target).is_plain else {"status": self._status.address}

    def rows(self, k: object, v: object, tokens: int) -> dict[str, int]:
        """Return tensors of new tokens as pages of one token each."""
        rows = {"pages": tokens, "page_tokens": 1}
        for part, tensor, dim in (("k", k, self.dims[0]), ("v", v, self.dims[1])):
            address, signature = view_of(part, tensor, 0, [])
            check(Binding(part, self._dtype, (tokens, dim)), signature, {}, self.device)
            rows[part] = address
        return rows

    def addresses(self, name: str) -> dict[str, int]:
        """Return the addresses of a store's parts in the memory, and the sizes of its pages, as cache kernels bind
        them."""
        store, found = self._store(name)
        base = view_of("memory", self.memory, 0, [])[0]
        places = {
            "k" if part == "k_pages" else "v" if part == "v_pages" else part.replace("scales", "meta"): base
            + at
            for part, at in found.in_page.items()
        }
        return {"pages": self.pages, "page_tokens": store.page_size, "page_bytes": self.page_bytes, **places}

    def shape(self, name: str | None) -> Shape:
        """Return the shape that decides kernels which write a store; for None, kernels that read the caller's rows.
        PlanError for scales that writing does not compute."""
        sizes: tuple = (*self.dims, self._dtype, self.device)
        if name is None:  # Rows of the caller.
            return Shape(0, 1, *sizes, Format(self._dtype), Format(self._dtype))
        store, found = self._store(name)
        given = [
            each.text()
            for each in (found.key, found.value)
            if each.per in ("head", "tensor") or each.has_tensor_scale
        ]
        if given:
            raise PlanError(
                f"{name}: expected scales by token, which `write` computes, got {given[0]}: quantize with attn.quantize, and write the tensors yourself"
            )
        return Shape(0, store.page_size, *sizes, found.key, found.value, "unified")

    def _copy(
        self, source: str | None, target: str, pages: dict, read: Any, written: Any, stream: object
    ) -> None:
        shapes = self.shape(source), self.shape(target)
        place, number = get_device(self.device), stream_number(self.device, stream)
        try:
            if (source, target) not in self._kernels:
                request = request_for(requantize_text(1, *shapes), target=place.target, form=form_of(place))
                self._kernels[source, target] = [_attn.Requantizer(load_native(request, place)[0]), 0]
            kernel, room = self._kernels[source, target]
            if len(read) > room:
                place.synchronize(number)  # Launches may still use the lists that grow.
                kernel.reserve(max(2 * len(read), 64), 1)
                self._kernels[source, target][1] = max(2 * len(read), 64)
            to = self.addresses(target) | self.status_of(target)
            kernel.execute(pages, to, read.tolist(), written.tolist(), number)
        except Failure as failure:
            raise failed(failure, PlanError) from None

    def waste(self) -> dict[str, float]:
        """Return the unused share of a page, for each store."""
        return {name: 1 - self._needed(name) / self.page_bytes for name in self._found}

    def _needed(self, name: str) -> int:
        """Return the bytes of a page that a store needs, including the `per_token` entries."""
        store, found = self._found[name]
        return found.page_bytes + store.page_size * sum(DTYPES[dtype][1] for dtype in self._extra.values())

    def _store(self, name: str) -> tuple[Unified, Description]:
        if name not in self._found:
            raise expected(SpecError, "name", "one of " + ", ".join(self._found), name)
        return self._found[name]

    def __repr__(self) -> str:
        stores = ", ".join(f"{name}: {store.layout()}" for name, (store, _) in self._found.items())
        return (
            f"<attn.UnifiedPages on {self.device}: {self.pages} pages of {self.page_bytes} bytes, {stores}>"
        )


def _extra(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, dtype in given.items():
        short = short_name(dtype)
        if short not in ("i32", "f32"):
            raise expected(SpecError, f"per_token[{name!r}]", "'int32' or 'float32'", dtype)
        found[name] = short
    return found


def _slots(given: object, most: int) -> numpy.ndarray:
    found = numpy.array(integers("slots", given), numpy.int64)
    if len(found) and found.max() >= most:
        raise expected(TensorError, "slots", f"less than {most}", int(found.max()), nearest=most - 1)
    kept = found[found >= 0]
    if len(numpy.unique(kept)) != len(kept):
        raise TensorError("slots: expected each slot once, got one twice")
    return found.clip(-1).astype(numpy.int32)
