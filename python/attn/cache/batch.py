# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rows of one step over a cache, for any kernel whose operands show that cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from .. import _attn
from ..errors import PlanError, Uncopied, expected
from ..memory.devices import failed
from ..memory.dtypes import DTYPES
from ..memory.formats import PART_OF_KEY, parse_format
from ..memory.tables import int32_array
from ..run.kernel import Kernel
from ..run.prepared import Prepared, RowOrder
from .integers import items, whole
from .kinds import sees_no_more
from .state import CacheClass, CacheState


class CacheBatch(Uncopied):
    """The rows of one step; `PagedCache.batch` returns it. Rows are those of the requests in their order; a plan may
    number them in another order (`user_row`)."""

    _instead = "it belongs to its cache; make another with PagedCache.batch"

    def __init__(
        self,
        cache: CacheState,
        requests: Sequence,
        classes: Sequence[int] | None,
        ends: Sequence[int] | None,
        max_pages: int = 0,
    ):
        self.cache: Any = cache
        """The PagedCache that made it."""
        self.max_pages = whole("max_pages", max_pages, 0)
        self.groups = row_groups(requests)
        """The requests, as the extension reads them."""
        if not len(self.groups):
            raise PlanError("requests: expected one or more nodes, got none")
        cache._ask(cache._native.check_groups, self.groups)
        self.classes = _numbers("classes", classes)
        self.ends = _numbers("ends", ends)
        self._made: dict[Kernel, tuple[_attn.BatchBuilder, Prepared, tuple]] = {}

    @property
    def rows(self) -> int:
        """The number of query rows of all requests."""
        return self.groups.rows + sum(self.cache.draft_tokens(node) for node in self.groups.drafts)

    def update(self) -> None:
        """Prepare the next step of decoding, after the requests' nodes were appended to: as many rows, which are the
        last ones of their nodes as these end now. Then update the plans. Costs no more than the changes."""
        self.cache._copy()
        for kernel in list(self._made):
            builder, prepared, operands = self._made[kernel]
            try:
                if not builder.update(self.cache._native, prepared.native):
                    self._make(kernel, builder, operands)
            except _attn.Failure as failure:
                raise failed(failure, PlanError) from None

    def user_row(self, kernel: Kernel) -> numpy.ndarray:
        """Return the user's row of each row of the kernel's batch, int32 [rows]. `Kernel.run` with rows="batch" takes
        queries and gives results in this order."""
        return numpy.frombuffer(self._prepare_for(kernel).native.user_row, dtype=numpy.int32)

    def batch_row(self, kernel: Kernel) -> numpy.ndarray:
        """Return the batch's row of each of the user's rows, int32 [rows]."""
        return numpy.frombuffer(self._prepare_for(kernel).native.batch_row, dtype=numpy.int32)

    def instances(self, kernel: Kernel) -> tuple[tuple[int, ...], ...]:
        """Return, for each operand that the kernel reads, the node of each instance, in the order of a significance's
        first dimension."""
        found = self._prepare_for(kernel).native.nodes
        return tuple(tuple(int(node) for node in of_operand) for of_operand in found)

    def operands(self, kernel: Kernel) -> tuple[tuple[int, bool, bool, int] | None, ...]:
        """Return the part of the cache that each operand of the kernel shows: head class, nodes, drafts, tokens of a
        page. None for an operand of which no row sees anything."""
        self._prepare_for(kernel)
        return self._made[kernel][2]

    def _shown_to(self, plan: Any) -> tuple:
        """Return the parts that operands of the plan's kernel show, for CacheLayer."""
        _, prepared, operands = self._made[plan.kernel]
        if prepared is not plan._prepared:
            raise PlanError("plan: its batch has changed since it was planned; call plan.update() first")
        return operands

    def _prepare_for(self, kernel: Kernel) -> Prepared:
        if kernel not in self._made:
            operands = operands_of(self.cache, kernel, self.ends)
            shown = dict(zip(kernel._operands, operands, strict=True))
            read = [shown[operand["argument"]][:3] for operand in kernel.manifest["operands"]]
            builder = _attn.BatchBuilder(kernel._native, operands=read, max_pages=self.max_pages)
            try:
                self._make(kernel, builder, operands)
            except _attn.Failure as failure:
                raise failed(failure, PlanError) from None
        return self._made[kernel][1]

    def _make(self, kernel: Kernel, builder: _attn.BatchBuilder, operands: tuple) -> None:
        ends = self.ends or kernel.ends
        native = builder.build(self.cache._native, self.groups, classes=self.classes, ends=ends)
        sizes = {"rows": native.rows}
        for name, operand in zip(kernel._operands, operands, strict=True):
            if operand is None:
                continue
            head_class, _, _, page = operand
            sizes[f"{name}.pages"] = self.cache._classes[head_class].pages * self.cache.page_size // page
        if kernel._weighed:  # Results have the sizes of tables.
            for name, (_, shape, _) in native.tables.items():
                if name.endswith(".block_table"):
                    operand = name.rpartition(".")[0]
                    sizes |= {f"{operand}.instances": shape[0], f"{operand}.max_pages": shape[-1]}
        order = RowOrder.of(native.user_row, native.batch_row)
        self._made[kernel] = builder, Prepared(native, sizes, self.classes, order), operands

    def __repr__(self) -> str:
        return f"<attn.CacheBatch of {len(self.groups)} requests, {self.rows} rows>"


def _check_sight(kind: CacheClass, kernel: Kernel, ends: Sequence[int]) -> None:
    """Refuse a kernel whose rows see tokens that a kind of layers has given back."""
    for operand in kernel.manifest["operands"]:
        if kind.recent == 0 or operand["argument"] != kind.name:
            continue
        if not sees_no_more(operand["visibility"], ends or kernel.ends, kind.recent, kind.sink):
            near = f"attn.recent({kind.recent})"
            see = (
                f"attn.causal() & (attn.sink({kind.sink}) | {near})"
                if kind.sink
                else f"attn.causal() & {near}"
            )
            raise PlanError(
                f"{kind.name}: the kernel sees tokens that these layers give back; expected no more than {see}"
            )


def row_groups(requests: object) -> _attn.RowGroups:
    """Read requests. A node stands for its last token; (node, rows) for its last rows; (node, rows, True) for these and
    its draft."""
    return _attn.RowGroups(items("requests", requests), _read_group)


def _read_group(index: int, request: object) -> tuple[int, int, bool]:
    """Read a request whose numbers are not Python's ints, or refuse it."""
    parts = request if isinstance(request, (tuple, list)) else (request, 1)
    node, rows, draft = (
        (*parts, False) if len(parts) == 2 else parts if len(parts) == 3 else (None, None, None)
    )
    whole = all(isinstance(n, (int, numpy.integer)) and not isinstance(n, bool) for n in (node, rows))
    if not whole or not isinstance(draft, bool) or not 0 <= rows < 1 << 31 or not 0 <= node < 1 << 64:
        legal = "a node, (node, rows) or (node, rows, draft)"
        raise expected(PlanError, f"requests[{index}]", legal, request)
    return int(node), int(rows), draft


def operands_of(
    cache: CacheState, kernel: Kernel, ends: Sequence[int] = ()
) -> tuple[tuple[int, bool, bool, int] | None, ...]:
    """Return the part of the cache that each operand shows: its head class or kind of layers, by name; nodes if its
    pages are the nodes', drafts if they are the drafts'; None if no kernel reads it. `ends`: of windows and sinks instead
    of the compiled ones. PlanError for a kernel that does not fit the cache."""
    arguments = [argument for argument in kernel.manifest["arguments"] if argument["role"] == "kv"]
    names = [head_class.name for head_class in cache._classes]
    if cache.device != kernel.device:
        raise PlanError(f"batch: a cache on {cache.device} for a kernel on {kernel.device}")
    found: list[tuple[int, bool, bool, int] | None] = []
    read = {operand["argument"] for operand in kernel.manifest["operands"]}
    for argument in arguments:
        if argument["name"] not in read:
            found.append(None)
            continue
        name, wanted = argument["name"], argument.get("head_class")
        if cache._kinds:
            if wanted is not None or name not in names:
                shown = f"head class {wanted!r}" if wanted is not None else "no kind of layers"
                raise PlanError(
                    f"{name}: shows {shown}, and the cache has layers of {', '.join(names)}: describe one kernel for each "
                    "kind, with Paged(name=...) of its name"
                )
            wanted = name
        if wanted is None and len(names) > 1:
            raise PlanError(
                f"{name}: the cache has a store for each of {', '.join(names)}, and this operand shows no class; "
                "describe it with Paged(head_class=...)"
            )
        if wanted is not None and wanted not in names:
            raise PlanError(f"{name}: shows head class {wanted!r}, and the cache has {', '.join(names)}")
        head_class = names.index(wanted) if wanted is not None else 0
        store = "paged" if argument["store"] == "paged" else argument["store"]
        page, legal = argument.get("page", 0), {cache.page_size, cache.draft_page}
        stored = cache._stored[head_class]
        facts = {
            "kv_heads": (argument.get("kv_heads") or stored.kv_heads, stored.kv_heads),
            "head_dim": (argument["key_dim"], stored.head_dim),
            "value_dim": (argument["value_dim"], stored.value_dim),
        }
        for fact, (of_kernel, of_cache) in facts.items():
            if of_kernel != of_cache:
                raise PlanError(f"{name}: the kernel has {fact}={of_kernel}, and the cache {fact}={of_cache}")
        for part, format in (("key", stored.key), ("value", stored.value)):
            latent = stored.latent and part == "value"
            if argument[f"{part}_format"] == (PART_OF_KEY if latent else format.text()):
                continue
            if latent or argument[f"{part}_format"] == PART_OF_KEY:
                said = [f"value=attn.first({stored.value_dim})", "values apart from keys"]
                said = said[::-1] if latent else said
                raise PlanError(f"{name}: the kernel has {said[0]}, and the cache {said[1]}")
            of_kernel = parse_format(argument[f"{part}_format"])
            if of_kernel.is_plain and format.is_plain:
                said = [f"dtype={DTYPES[each.code][0]!r}" for each in (of_kernel, format)]
            else:
                said = [each.said(part) for each in (of_kernel, format)]
            raise PlanError(f"{name}: the kernel has {said[0]}, and the cache {said[1]}")
        if store != "paged" or page not in legal:
            given_store = f"Paged(page_size={page})" if store == "paged" else f"{store.capitalize()}()"
            pages = " or ".join(f"Paged(page_size={size})" for size in sorted(legal))
            raise PlanError(f"{name}: the kernel reads {given_store}, and the cache is {pages}")
        if cache._kinds:
            _check_sight(cache._classes[head_class], kernel, ends)
        found.append((head_class, page == cache.page_size, page == cache.draft_page, page))
    return tuple(found)


def _numbers(name: str, given: Sequence[int] | None) -> tuple[int, ...]:
    found = () if given is None else int32_array(name, given)
    if numpy.ndim(found) != 1:
        raise expected(PlanError, name, "a sequence of numbers", given)
    return tuple(int(number) for number in found)
