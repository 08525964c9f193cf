# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Padded batches as plans are made from them: which keys rows see, as tables of a packed store."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from ..describe.visibility import read_visibility
from ..memory.tables import describe
from ..run.kernel import Kernel
from ..run.prepared import Prepared
from . import spans as of_batch

_MOST_DESCRIBED = 256
os.register_at_fork(after_in_child=lambda: _described.cache_clear())  # they hold kernels


@dataclass(frozen=True)
class Visible:
    """Which keys rows see: `spans` and `positions` as of spans.py in CPU memory; and of those what `see` shows, the text of a
    Visibility. Where nothing is hidden of the first `end` tokens of each sequence, and rows are the last of those and see
    nothing behind them, `end` says so; 0 says nothing."""

    spans: Tensor
    positions: Tensor | None
    see: str
    end: int = 0


class PaddedBatch:
    """What is planned. A step later only the contents of tables differ, so that what the tensors are is described once."""

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
    """Of a batch all but its tables and the number of its tokens, which each step has other ones of, as the extension takes it."""
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
    return describe(kernel._tensors, manifest, given)
