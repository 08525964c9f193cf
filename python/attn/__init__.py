"""attn: a compiler for attention, and what it compiles, on your tensors.

    o = attn.attend(q, k, v, causal=True)          # NumPy, PyTorch or DLPack; on a CPU or a GPU
    spec = attn.Spec(q_heads=32, kv_heads=8, head_dim=128, kv=[attn.Paged(page_size=16)], see=attn.causal())
    kernel = attn.compile(spec)

`import attn` loads neither PyTorch nor the compiler: a name is imported when it is first used.
"""

from __future__ import annotations

import importlib

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

# Where each public name lies. No module has the name of something public it defines: importing the one would
# replace the other.
_LAZY: dict[str, str] = {
    "CacheClass": "paged",
    "Dense": "stores",
    "HeadClasses": "classes",
    "Packed": "stores",
    "Paged": "stores",
    "PagedCache": "paged",
    "Score": "score",
    "Spec": "spec",
    "Store": "stores",
    "Visibility": "visibility",
    "all_tokens": "visibility",
    "bfloat16_bits": "tensors",
    "causal": "visibility",
    "compile": "jit",
    "forbid_compiling": "jit",
    "from_bfloat16_bits": "tensors",
    "heads": "classes",
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
