# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formats of keys and values in an engine's pages, by one name for both."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import torch

from ..describe.stores import Unified
from ..memory.formats import Description

SCALED = ("fp8_e4m3", "fp8_e5m2")
"""Formats of 8-bit floats whose scale is a tensor's, as engines have them. Pages have no metadata."""

PACKED = {
    "int8": ("int8", "int8"),
    "int8_int4": ("int8", "int4"),
    "int4": ("int4", "int4"),
    "int4_int2": ("int4", "int2"),
    "mxfp8": ("mxfp8", "mxfp8"),
    "mxfp4": ("mxfp4", "mxfp4"),
    "nvfp4": ("nvfp4", "nvfp4"),
}
"""Formats whose scales and zero points lie beside keys and values in a page: the format of keys, and that of values."""

NAMES = (*SCALED, *PACKED)


class Packing(NamedTuple):
    """The sizes that decide a layer's pages in a format of PACKED."""

    format: str
    heads: int
    """KV heads."""
    dim: int
    """Features of a key, and of a value."""
    page_size: int
    """Tokens of a page."""
    dtype: torch.dtype
    """PyTorch's dtype of new keys and values."""

    def store(self) -> Unified:
        """Return the store of keys and values."""
        key, value = PACKED[self.format]
        return Unified(page_size=self.page_size, key=key, value=value)

    def description(self) -> Description:
        """Return the tensors of one head's blocks."""
        return self.store().description(1, self.dim, self.dim)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's key and value of one head, with their metadata; a block of all tokens is a multiple of 16."""
        step = 16 // gcd(16, self.page_size)
        return -(-self.description().page_bytes // (self.page_size * step)) * step

    @property
    def block_bytes(self) -> int:
        """Bytes of a page of one head."""
        return self.page_size * self.token_bytes
