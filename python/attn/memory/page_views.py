# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensors of a unified store as views into the memory of its pages, `uint8 [pages, bytes]`.

The runtime defines their offsets in a page (Store::PageParts in attn_rt/tensor/Store.h).
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from .dtypes import DTYPES, numpy_name, torch_dtype
from .formats import Description


def page_views(memory: Any, found: Description) -> dict[str, Any]:
    """Return views of a NumPy array or a PyTorch tensor, whose pages may have more bytes than the store needs, by the
    names of the store's tensors. Scales of a tensor or head are not among them: they are not in pages."""
    tensors = {name: (dtype, extents) for name, dtype, extents in found.tensors}
    return {
        name: token_view(memory, at, tensors[name][0], tensors[name][1][1:])
        for name, at in found.in_page.items()
    }


def token_view(memory: Any, at: int, dtype: str, extents: tuple) -> Any:
    """Return [pages, *extents] of a dtype, as "i32", that begins at byte `at` of each page."""
    part = memory[:, at : at + math.prod(extents) * DTYPES[dtype][1]]
    if isinstance(memory, numpy.ndarray):
        return part.view(numpy_name(dtype)).reshape(len(memory), *extents)
    import torch

    return part.view(torch_dtype(torch, dtype)).unflatten(1, extents)
