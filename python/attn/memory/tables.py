# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a user's tensors to what the extension plans from: tables with their contents, data as dtype and shape."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy

from ..errors import PlanError, closest, expected, given
from .dtypes import is_dtype, short_name
from .views import Binding

_SUFFIXES = ("lengths", "pos0", "rows", "block_table", "start")
_INT32 = numpy.iinfo(numpy.int32)


def describe(
    taken: Mapping[str, Binding], manifest: dict, tensors: Mapping[str, object]
) -> tuple[dict[str, tuple], dict[str, int], tuple[int, ...]]:
    """What Kernel.batch of the extension takes; the sizes of dimensions that have names; the heads' classes. `taken`:
    what the description takes and gives (views.py), whether kernels read it or not."""
    data = {name: binding for name, binding in taken.items() if not binding.written and name != "slot_heads"}
    operands = [argument["name"] for argument in manifest["arguments"] if argument["role"] == "kv"]
    tables = ["q_start", "q_pos"] + [f"{name}.{suffix}" for name in operands for suffix in _SUFFIXES]
    tables += [argument["name"] for argument in manifest["arguments"] if argument["role"] == "classes"]
    described: dict[str, tuple] = {}
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        if name in data:
            dtype, shape = _described(name, tensor, data[name].dtype)
            described[name] = (dtype, shape, None)
            if len(shape) == len(data[name].dims):
                sizes |= {
                    dim: n for dim, n in zip(data[name].dims, shape, strict=True) if isinstance(dim, str)
                }
        elif name in tables:
            values = int32_array(name, tensor)
            described[name] = ("i32", values.shape, values)
        else:
            known = [*data, *tables]
            raise expected(
                PlanError, "batch", f"tensors named {', '.join(known)}", name, nearest=closest(name, known)
            )
    classes = described["classes"][2] if "classes" in described else numpy.empty(0)
    return described, sizes, tuple(classes.ravel().tolist())


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
        shape = tuple(int(size) for size in shape)
    except (TypeError, ValueError):
        shape = None
    if short is None or shape is None:
        raise expected(PlanError, name, "a tensor, or (dtype, shape)", tensor)
    return wanted if is_dtype(short, wanted) else short, shape


def int32_array(name: str, values: object) -> numpy.ndarray:
    """Whole numbers of a table: a list, an array or a tensor of integers. One on a GPU is waited for and copied."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy() if not values.is_floating_point() else values
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise expected(PlanError, name, "integers", values) from None
    if array.dtype == numpy.int32 and array.flags.c_contiguous:
        return array
    if array.size and (array.dtype.kind not in "iu"):
        raise PlanError(
            f"{name}: expected integers, got {array.dtype} of shape {list(array.shape)}: {given(values)}"
        )
    if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        worst = array.max() if array.max() > _INT32.max else array.min()
        raise PlanError(f"{name}: expected integers of 32 bits, got {worst}")
    return numpy.ascontiguousarray(array, dtype=numpy.int32)
