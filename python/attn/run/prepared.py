# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A batch that was checked and handed to the extension: what plans are made from."""

from __future__ import annotations

from typing import NamedTuple

from .. import _attn
from .rows import RowOrder


class Prepared(NamedTuple):
    """A batch as the extension has it; the sizes that tensors of a run must have; the classes of heads; and the order
    of rows where that is not the user's."""

    native: _attn.Batch
    sizes: dict[str, int]
    classes: tuple[int, ...]
    order: RowOrder | None = None
