# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types by the names that Python, MLIR, NumPy and PyTorch give them."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..errors import Error, SpecError, closest, expected

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy
    import torch

    DTypeLike: TypeAlias = str | torch.dtype | numpy.dtype[Any] | type
    """A dtype by any library's name."""
else:
    DTypeLike = Any

# attn's name, which is also the manifest's: (Python's name, bytes). Names and bytes agree with the
# extension's `dtypes`; a description does not load the extension.
DTYPES = {
    "bf16": ("bfloat16", 2),
    "f16": ("float16", 2),
    "f32": ("float32", 4),
    "f64": ("float64", 8),
    "i8": ("int8", 1),
    "i16": ("int16", 2),
    "i32": ("int32", 4),
    "i64": ("int64", 8),
    "u8": ("uint8", 1),
    "u16": ("uint16", 2),
    "u32": ("uint32", 4),
    "u64": ("uint64", 8),
    "bool": ("bool", 1),
    "f8e4m3fn": ("float8_e4m3fn", 1),
    "f8e5m2": ("float8_e5m2", 1),
}
_SHORT = (
    {long: short for short, (long, _) in DTYPES.items()}
    | {short: short for short in DTYPES}
    | {"half": "f16", "fp16": "f16", "fp32": "f32"}
    # PyTorch's names of a byte with two 4-bit floats, and of a power of two: the parts of a microscaling
    # format.
    | {"float4_e2m1fn_x2": "u8", "float8_e8m0fnu": "u8"}
)
# Libraries without the type use its bits.
_BITS = {"bf16": "u16", "f8e4m3fn": "u8", "f8e5m2": "u8"}
_known: dict[object, str] = {}


def short_name(dtype: object) -> str | None:
    """Return attn's name, "bf16" for "bfloat16", torch.bfloat16, ml_dtypes.bfloat16 or a NumPy dtype; None for other
    dtypes."""
    try:
        return _known[dtype]
    except (KeyError, TypeError):  # Not met yet, or not hashable.
        pass
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    if isinstance(dtype, type):
        name = dtype.__name__
    short = _SHORT.get(str(name).removeprefix("torch."))
    if short and isinstance(dtype, Hashable):
        _known[dtype] = short
    return short


def is_dtype(found: str | None, wanted: str) -> bool:
    """Whether a tensor of one dtype stands for the other: NumPy has no bfloat16 (tensors.py), and few libraries have
    8-bit floats."""
    return found is not None and found in (wanted, _BITS.get(wanted))


def numpy_name(dtype: str) -> str:
    """Return NumPy's name of a dtype, or of its bits."""
    return DTYPES[_BITS.get(dtype, dtype)][0]


def torch_dtype(torch: Any, dtype: str) -> Any:
    """Return PyTorch's dtype of a name, or of its bits if it has none."""
    found = getattr(torch, DTYPES[dtype][0], None)
    return getattr(torch, numpy_name(dtype)) if found is None else found


def storage_name(argument: str, dtype: object, kind: type[Error] = SpecError) -> str:
    """Return "bfloat16" or "float16", the dtypes of queries, keys and values. Raises `kind` for other dtypes."""
    short = short_name(dtype)
    if short in ("bf16", "f16"):
        return DTYPES[short][0]
    nearest = closest(dtype, ("bfloat16", "float16")) if short is None and isinstance(dtype, str) else None
    raise expected(kind, argument, "'bfloat16' or 'float16'", dtype, nearest=nearest)


def no_floats(dtype: str | None) -> str:
    """Return a message's hint about integers and truth values given for floats."""
    if not dtype or dtype[0] == "f" or dtype == "bf16":
        return ""
    return (
        "; nearest legal: its float32 copy, which holds integers up to 2^24 and truth values (1 and 0) exactly. As an "
        "index such an element is attn.math.to_int(table[i])"
    )


_NAMES = {short: long for short, (long, _) in DTYPES.items()} | {"i4": "int4", "i2": "int2"}
_TYPES = re.compile(rf"(?<![\w'.<])({'|'.join(_NAMES)})(?![\w'])")


def in_python(message: str) -> str:
    """Replace names of manifests in the runtime's message with Python's names: "f32", "paged<16>"."""
    message = re.sub(r"\bpaged<(\d+)>", r"Paged(page_size=\1)", message)
    return _TYPES.sub(lambda found: _NAMES[found[1]], message)
