# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensors of a unified store as views into the memory of its pages, `uint8 [pages, bytes]`.

Where they begin in a page, the runtime says (Store::PageParts in attn_rt/tensor/Store.h).
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from .dtypes import DTYPES, numpy_name, torch_dtype
from .formats import Description


def page_views(memory: Any, found: Description) -> dict[str, Any]:
    """Of a NumPy array or a PyTorch tensor, whose pages may have more bytes than the store asks for: by the names of the
    store's tensors, all but scales of a tensor or head, which lie elsewhere."""
    tensors = {name: (dtype, extents) for name, dtype, extents in found.tensors}
    return {
        name: token_view(memory, at, tensors[name][0], tensors[name][1][1:])
        for name, at in found.in_page.items()
    }


def token_view(memory: Any, at: int, dtype: str, extents: tuple) -> Any:
    """[pages, *extents] of a dtype, as "i32", that begins with the byte `at` of each page."""
    part = memory[:, at : at + math.prod(extents) * DTYPES[dtype][1]]
    if isinstance(memory, numpy.ndarray):
        return part.view(numpy_name(dtype)).reshape(len(memory), *extents)
    import torch

    return part.view(torch_dtype(torch, dtype)).unflatten(1, extents)
