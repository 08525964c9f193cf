"""attn: a compiler for attention, and what it compiles, on your tensors.

    o = attn.attend(q, k, v, causal=True)          # NumPy, PyTorch or DLPack; on a CPU or a GPU
    spec = attn.Spec(q_heads=32, kv_heads=8, head_dim=128, dtype="bfloat16", kv=[attn.Paged()], see=attn.causal())
    kernel = attn.compile(spec)

`import attn` loads neither PyTorch nor the compiler: a name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import (
    CacheMiss,
    CheckError,
    CompileError,
    DeviceError,
    Error,
    OutOfPages,
    PlanError,
    SpecError,
    TensorError,
)

if TYPE_CHECKING:  # what __getattr__ gives, for type checkers and editors
    from . import math as math
    from .attention import attend as attend
    from .bundle import load_bundle as load_bundle
    from .checking import CheckReport as CheckReport
    from .checking import check as check
    from .classes import HeadClasses as HeadClasses
    from .classes import heads as heads
    from .jit import compile as compile
    from .jit import forbid_compiling as forbid_compiling
    from .jit import limit_kernels as limit_kernels
    from .kernel import Kernel as Kernel
    from .paged import CacheClass as CacheClass
    from .paged import PagedCache as PagedCache
    from .plan import Plan as Plan
    from .samples import sample as sample
    from .score import Score as Score
    from .spec import Spec as Spec
    from .stores import Dense as Dense
    from .stores import Packed as Packed
    from .stores import Paged as Paged
    from .stores import Store as Store
    from .tensors import bfloat16_bits as bfloat16_bits
    from .tensors import from_bfloat16_bits as from_bfloat16_bits
    from .visibility import Visibility as Visibility
    from .visibility import all_tokens as all_tokens
    from .visibility import causal as causal
    from .visibility import recent as recent
    from .visibility import sink as sink
    from .visibility import window as window

# Where each public name lies. No module has the name of something public it defines: importing the one would
# replace the other.
_LAZY: dict[str, str] = {
    "CacheClass": "paged",
    "CheckReport": "checking",
    "Dense": "stores",
    "HeadClasses": "classes",
    "Kernel": "kernel",
    "Packed": "stores",
    "Paged": "stores",
    "PagedCache": "paged",
    "Plan": "plan",
    "Score": "score",
    "Spec": "spec",
    "Store": "stores",
    "Visibility": "visibility",
    "all_tokens": "visibility",
    "attend": "attention",
    "bfloat16_bits": "tensors",
    "causal": "visibility",
    "check": "checking",
    "compile": "jit",
    "forbid_compiling": "jit",
    "from_bfloat16_bits": "tensors",
    "heads": "classes",
    "limit_kernels": "jit",
    "load_bundle": "bundle",
    "recent": "visibility",
    "sample": "samples",
    "sink": "visibility",
    "window": "visibility",
}

_MODULES: tuple[str, ...] = ("math",)

__all__ = [
    "CacheMiss",
    "CheckError",
    "CompileError",
    "DeviceError",
    "Error",
    "OutOfPages",
    "PlanError",
    "SpecError",
    "TensorError",
    *_LAZY,
    *_MODULES,
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module 'attn' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
