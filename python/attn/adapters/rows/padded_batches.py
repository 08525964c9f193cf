# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Padded batches as input of planning: the keys that rows see, as tables of a packed store."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from ...describe.visibility import read_visibility
from ...run.kernel import Kernel
from ...run.prepared import Prepared
from . import spans as of_batch

_MOST_DESCRIBED = 256
os.register_at_fork(after_in_child=lambda: _described.cache_clear())  # They hold kernels.


@dataclass(frozen=True)
class Visible:
    """The keys that rows see: `spans` and `positions` as of spans.py in CPU memory, restricted by `see`, the text of a
    Visibility. `end` > 0 says that each sequence hides none of its first `end` tokens, that rows are the last of these,
    and that rows see nothing after them."""

    spans: Tensor
    positions: Tensor | None
    see: str
    end: int = 0


class PaddedBatch:
    """A batch to plan. In the next step only the contents of tables differ, so tensors are described once."""

    def __init__(
        self, visible: Visible, dtype: torch.dtype, classes: tuple[int, ...], sizes: tuple[int, ...]
    ):
        self._of = dtype, classes, sizes
        if visible.end:
            batch, heads_apart, rows, tokens, _ = sizes
            self._tables = of_batch.tables_of_all(batch * heads_apart, rows, tokens, visible.end)
            return
        positions = None if visible.positions is None else visible.positions.numpy()
        see = read_visibility(visible.see)
        self._tables = of_batch.tables(visible.spans.numpy(), positions, see, *sizes[:-1])

    def _prepare_for(self, kernel: Kernel) -> Prepared:
        dtype, classes, (batch, heads_apart, rows, tokens, value_dim) = self._of
        data, named, classes = _described(kernel, dtype, classes, (batch, heads_apart, rows, value_dim))
        count, given = batch * heads_apart * tokens, dict(data)
        for name in ("kv.k", "kv.v"):
            kind, (_, *shape), _ = given[name]
            given[name] = kind, (count, *shape), None
        for name, table in self._tables.items():
            given[name] = "i32", table.shape, table
        native = kernel._native.batch(given, ends=kernel.ends)
        return Prepared(
            native, named | {kernel._tensors["kv.k"].dims[0]: count, "rows": native.rows}, classes
        )


@functools.lru_cache(maxsize=_MOST_DESCRIBED)
def _described(
    kernel: Kernel, dtype: torch.dtype, classes: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[dict, dict, tuple[int, ...]]:
    """Describe a batch without its tables and its number of tokens, which differ in each step. Returns it as the
    extension takes it."""
    batch, heads_apart, rows, value_dim = sizes
    manifest = kernel.manifest
    inside, sequences = manifest["kv_heads"], batch * heads_apart
    given: dict[str, object] = {
        "q": (dtype, (sequences * rows, manifest["q_heads"], manifest["key_dim"])),
        "kv.k": (dtype, (sequences, inside, manifest["key_dim"])),
        "kv.v": (dtype, (sequences, inside, value_dim)),
    }
    if classes:
        given["classes"] = classes
    if "sink_logits" in kernel.slots:
        given["sink_logits"] = (torch.float32, (manifest["q_heads"],))
    return kernel._form.describe(given)
