# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Significance: what is asked of tokens beside attention, as policies of caches ask for it.

It is the sum over rows of a token's weight, of each query head, and those of a head group as one number. The kernel makes it
that makes the output, in a launch behind those that finish rows: no weights are ever in memory.
"""

from __future__ import annotations

from typing import Any

from ..describe.checks import TOGETHER
from ..errors import TensorError, closest, expected
from ..memory.views import is_traced


def check_asked(q: Any, significance: object, rows: object, forest: object) -> None:
    """TensorError where there is no significance to be had of attn.attend."""
    if not isinstance(significance, str) or significance not in TOGETHER:
        nearest = closest(significance, TOGETHER)
        raise expected(TensorError, "significance", "max, mean or sum", significance, nearest=nearest)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows < 2**31):
        legal = "a number of rows from 1 on, or None for all"
        raise expected(TensorError, "significance_rows", legal, rows, nearest=1)
    if is_traced(q):
        raise TensorError("significance: expected None in compiled code, which has no operator for it")
    if forest is not None and rows is not None:
        raise TensorError(
            "significance_rows: expected None beside forest, whose tokens rows of several sequences see; nearest: all rows"
        )
