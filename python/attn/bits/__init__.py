# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same bits in rollout and in training.

`attn.check_bits` compares an engine with a trainer; `row_ops` makes PyTorch's products and sums
fit for it.
"""

from __future__ import annotations

from .blocks import place_matters, row_ops

__all__ = ["place_matters", "row_ops"]
