# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn: a compiler for attention, and what it compiles, on your tensors.

    o = attn.attend(q, k, v, causal=True)          # NumPy, PyTorch or DLPack; on a CPU or a GPU
    spec = attn.Spec(q_heads=32, kv_heads=8, head_dim=128, dtype="bfloat16", kv=[attn.Paged()], see=attn.causal())
    kernel = attn.compile(spec)

`import attn` loads neither PyTorch nor the compiler: a name is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from . import forks as _forks  # noqa: F401  (from here on, forks wait for imports)
from .errors import (
    CacheMiss,
    CheckError,
    CompileError,
    DeviceError,
    Error,
    GroupError,
    OutOfPages,
    PlanError,
    SpecError,
    TensorError,
)

if TYPE_CHECKING:  # The names that __getattr__ gives, for type checkers and editors.
    from . import bits as bits
    from . import distributed as distributed
    from . import dualkv as dualkv
    from . import flash_attn as flash_attn
    from . import kv_policy as kv_policy
    from . import math as math
    from . import training as training
    from .bits.checking import BitsReport as BitsReport
    from .bits.checking import check_bits as check_bits
    from .cache.capture import Capture as Capture
    from .cache.kinds import LayerKind as LayerKind
    from .cache.mixed import MixedCache as MixedCache
    from .cache.page_pool import PageMoves as PageMoves
    from .cache.page_pool import PagePool as PagePool
    from .cache.page_pool import PageStatus as PageStatus
    from .cache.paged import PagedCache as PagedCache
    from .cache.rope import Norm as Norm
    from .cache.rope import Rope as Rope
    from .cache.state import CacheClass as CacheClass
    from .cache.steps import CacheSteps as CacheSteps
    from .cache.unified_pages import UnifiedPages as UnifiedPages
    from .compiler.artifacts import forbid_compiling as forbid_compiling
    from .compiler.bundle import load_bundle as load_bundle
    from .describe.classes import HeadClasses as HeadClasses
    from .describe.forest import Forest as Forest
    from .describe.score import Score as Score
    from .describe.spec import Spec as Spec
    from .describe.stores import Dense as Dense
    from .describe.stores import Packed as Packed
    from .describe.stores import Paged as Paged
    from .describe.stores import Store as Store
    from .describe.stores import Unified as Unified
    from .describe.stores import first as first
    from .describe.visibility import Visibility as Visibility
    from .describe.visibility import all_tokens as all_tokens
    from .describe.visibility import causal as causal
    from .describe.visibility import chunk as chunk
    from .describe.visibility import recent as recent
    from .describe.visibility import sink as sink
    from .describe.visibility import window as window
    from .heads.typed import heads as heads
    from .memory.codes import dequantize as dequantize
    from .memory.codes import quantize as quantize
    from .memory.tensors import bfloat16_bits as bfloat16_bits
    from .memory.tensors import from_bfloat16_bits as from_bfloat16_bits
    from .run.attention import attend as attend
    from .run.checking import CheckReport as CheckReport
    from .run.checking import check as check
    from .run.kernel import Kernel as Kernel
    from .run.kernels import compile as compile
    from .run.kernels import limit_kernels as limit_kernels
    from .run.kernels import load as load
    from .run.plan import Plan as Plan
    from .run.samples import sample as sample

# The module of each public name. No module or package has the name of something public: importing one would
# replace the other.
_LAZY: dict[str, str] = {
    "BitsReport": "bits.checking",
    "CacheClass": "cache.state",
    "LayerKind": "cache.kinds",
    "CacheSteps": "cache.steps",
    "Capture": "cache.capture",
    "CheckReport": "run.checking",
    "Dense": "describe.stores",
    "Forest": "describe.forest",
    "HeadClasses": "describe.classes",
    "Kernel": "run.kernel",
    "MixedCache": "cache.mixed",
    "Norm": "cache.rope",
    "Packed": "describe.stores",
    "PageMoves": "cache.page_pool",
    "PagePool": "cache.page_pool",
    "PageStatus": "cache.page_pool",
    "Paged": "describe.stores",
    "PagedCache": "cache.paged",
    "Plan": "run.plan",
    "Rope": "cache.rope",
    "Score": "describe.score",
    "Spec": "describe.spec",
    "Store": "describe.stores",
    "Unified": "describe.stores",
    "UnifiedPages": "cache.unified_pages",
    "Visibility": "describe.visibility",
    "all_tokens": "describe.visibility",
    "attend": "run.attention",
    "bfloat16_bits": "memory.tensors",
    "causal": "describe.visibility",
    "chunk": "describe.visibility",
    "check": "run.checking",
    "check_bits": "bits.checking",
    "compile": "run.kernels",
    "dequantize": "memory.codes",
    "first": "describe.stores",
    "forbid_compiling": "compiler.artifacts",
    "from_bfloat16_bits": "memory.tensors",
    "limit_kernels": "run.kernels",
    "load": "run.kernels",
    "load_bundle": "compiler.bundle",
    "quantize": "memory.codes",
    "recent": "describe.visibility",
    "sample": "run.samples",
    "sink": "describe.visibility",
    "window": "describe.visibility",
}

__version__: str  # Set by __getattr__, from the extension.

_MODULES: tuple[str, ...] = (
    "bits",
    "distributed",
    "dualkv",
    "flash_attn",
    "heads",
    "kv_policy",
    "math",
    "training",
)

__all__ = [
    "CacheMiss",
    "CheckError",
    "CompileError",
    "DeviceError",
    "Error",
    "GroupError",
    "OutOfPages",
    "PlanError",
    "SpecError",
    "TensorError",
    *_LAZY,
    *_MODULES,
]


if not TYPE_CHECKING:  # A type checker reports a name that is not imported above.

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return _version()
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        if name not in _LAZY:
            raise AttributeError(
                f"module 'attn' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value


def _version() -> str:
    try:
        from ._attn import build_info
    except ImportError as missing:  # The installer knows the version, too.
        metadata = importlib.import_module("importlib.metadata")
        try:
            return metadata.version("attn")
        except metadata.PackageNotFoundError:
            raise AttributeError(f"attn.__version__: the extension cannot be loaded: {missing}") from missing
    return build_info()["version"]


def __dir__() -> list[str]:
    return sorted(__all__)
