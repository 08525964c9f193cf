# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns a user's tensors into the extension's input of planning: tables with their contents, data as dtype and shape."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy

from ..errors import PlanError, closest, expected
from .dtypes import is_dtype, short_name
from .views import Binding

_SUFFIXES = ("lengths", "pos0", "rows", "block_table", "start")
_CSR = ("indptr", "indices", "last_page_len")
_INT32 = numpy.iinfo(numpy.int32)


class BatchForm:
    """The tensors of a kernel's batches, by name: what a description has of each is found once."""

    def __init__(self, taken: Mapping[str, Binding], manifest: dict):
        """`taken`: the tensors of the description (views.py), whether kernels read them or not."""
        self._data = {
            name: (binding.dtype, [(axis, dim) for axis, dim in enumerate(binding.dims) if type(dim) is str])
            for name, binding in taken.items()
            if not binding.written and name != "ordinal_heads"
        }
        """The dtype of each tensor of data, and its named dimensions by their axes."""
        self._ranks = {name: len(taken[name].dims) for name in self._data}
        arguments = manifest["arguments"]
        self._operands = {argument["name"]: argument for argument in arguments if argument["role"] == "kv"}
        self._lists = [f"{operand}.{part}" for operand in self._operands for part in _CSR]
        of_results = {dim for binding in taken.values() if binding.written for dim in binding.dims}
        self._tables: dict[str, tuple[str, str] | None] = dict.fromkeys(("q_start", "q_pos"))
        """The sizes that the two dimensions of a table give to results, if some do."""
        for operand in self._operands:
            self._tables |= dict.fromkeys(f"{operand}.{part}" for part in _SUFFIXES)
            if f"{operand}.max_pages" in of_results:
                self._tables[f"{operand}.block_table"] = f"{operand}.instances", f"{operand}.max_pages"
        self._tables |= dict.fromkeys(a["name"] for a in arguments if a["role"] == "classes")

    def describe(
        self, tensors: Mapping[str, object]
    ) -> tuple[dict[str, tuple], dict[str, int], tuple[int, ...]]:
        """Return the input of the extension's Kernel.batch, the sizes of named dimensions, and the heads' classes.
        PlanError."""
        if any(name in tensors for name in self._lists):
            for name, argument in self._operands.items():
                tensors = _without_csr(name, argument, tensors)
        described: dict[str, tuple] = {}
        sizes: dict[str, int] = {}
        for name, tensor in tensors.items():
            if name in self._data:
                wanted, named = self._data[name]
                dtype, shape = _described(name, tensor, wanted)
                described[name] = (dtype, shape, None)
                if len(shape) == self._ranks[name]:
                    for axis, dim in named:
                        sizes[dim] = shape[axis]
            elif name in self._tables:
                values = int32_array(name, tensor)
                described[name] = ("i32", values.shape, values)
                dims = self._tables[name]
                if dims is not None and values.ndim > 1:
                    sizes[dims[0]], sizes[dims[1]] = values.shape[0], values.shape[-1]
            else:
                known = [*self._data, *self._tables, *self._lists]
                raise expected(
                    PlanError,
                    "batch",
                    f"tensors named {', '.join(known)}",
                    name,
                    nearest=closest(name, known),
                )
        classes = described["classes"][2].ravel().tolist() if "classes" in described else ()
        return described, sizes, tuple(classes)


def _without_csr(operand: str, argument: dict, tensors: Mapping[str, object]) -> Mapping[str, object]:
    """Turn page lists, one after the other, into a block table and lengths. `indptr` [instances + 1]: offsets of each
    instance's pages in `indices`; `last_page_len` [instances]: tokens of its last page, or `lengths` instead.
    PlanError."""
    given_ones = [part for part in _CSR if f"{operand}.{part}" in tensors]
    if not given_ones:
        return tensors
    page, names = argument.get("page", 0), [f"{operand}.{part}" for part in _CSR]
    if not page or argument.get("ragged"):
        raise PlanError(
            f"{operand}.{given_ones[0]}: expected of a paged store whose heads are alike, got one of a "
            f"{'ragged ' if page else ''}{argument['store']} store"
        )
    lengths_name, table_name = f"{operand}.lengths", f"{operand}.block_table"
    wanted = names[:2] if lengths_name in tensors else names
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise PlanError(f"{', '.join(missing)}: expected beside {operand}.{given_ones[0]}, got none")
    for name in (table_name, *(names[2:] if len(wanted) == 2 else ())):
        if name in tensors:
            raise PlanError(f"{name}: expected page lists, or a block table and lengths, got both")
    indptr, indices = (int32_array(name, tensors[name]) for name in names[:2])
    rising = indptr.ndim == 1 and len(indptr) > 0 and indptr[0] == 0 and (numpy.diff(indptr) >= 0).all()
    if not rising or indices.ndim != 1 or indptr[-1] > len(indices):
        legal = f"offsets that rise from 0 to at most the {indices.size} entries of {names[1]}"
        raise expected(PlanError, names[0], legal, indptr.tolist())
    counts = numpy.diff(indptr)
    made = {name: tensor for name, tensor in tensors.items() if name not in names}
    if len(wanted) == 3:
        last = int32_array(names[2], tensors[names[2]])
        full = counts > 0
        if last.shape != counts.shape or ((last[full] < 1) | (last[full] > page)).any():
            legal = f"{len(counts)} numbers from 1 to the {page} tokens of a page"
            raise expected(PlanError, names[2], legal, last.tolist())
        made[lengths_name] = numpy.where(full, (counts - 1) * page + last, 0).astype(numpy.int32)
    table = numpy.zeros((len(counts), max(int(counts.max(initial=0)), 1)), numpy.int32)
    table[numpy.arange(table.shape[1]) < counts[:, None]] = indices[: indptr[-1]]
    made[table_name] = table
    return made


def _described(name: str, tensor: object, wanted: str) -> tuple[str, tuple[int, ...]]:
    dtype, shape = (
        tensor
        if isinstance(tensor, tuple) and len(tensor) == 2
        else (
            getattr(tensor, "dtype", None),
            getattr(tensor, "shape", None),
        )
    )
    short = short_name(dtype)
    try:
        shape = tuple(map(int, shape))
    except (TypeError, ValueError):
        shape = None
    if short is None or shape is None:
        raise expected(PlanError, name, "a tensor, or (dtype, shape)", tensor)
    return wanted if is_dtype(short, wanted) else short, shape


def int32_array(name: str, values: object) -> numpy.ndarray:
    """Return a table as int32: a list, an array or a tensor of integers. A tensor on a GPU is copied, which waits.
    PlanError."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        if values.is_meta:
            raise PlanError(f"{name}: expected integers, got a tensor on the meta device, which holds none")
        if not values.is_floating_point():
            values = (values if values.is_cpu else values.cpu()).numpy()
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise expected(PlanError, name, "integers", values) from None
    if array.dtype == numpy.int32 and array.flags.c_contiguous:
        return array
    if array.size and (array.dtype.kind not in "iu"):
        raise expected(PlanError, name, "integers", values)
    if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        worst = array.max() if array.max() > _INT32.max else array.min()
        raise PlanError(f"{name}: expected integers of 32 bits, got {worst}")
    return numpy.ascontiguousarray(array, dtype=numpy.int32)
