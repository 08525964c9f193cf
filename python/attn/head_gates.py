# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DuoAttention's gates: which KV heads need the whole context.

A gate per layer and KV head, near 1 for heads that retrieve from anywhere, near 0 for those that look at the sink and
at recent tokens only. The published files are a line per layer and a column per KV head, with a JSON file of the sizes
for which they were found beside them. (Source: arXiv 2410.10819; runtime/include/attn_rt/workload/HeadGates.h.)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy

from .errors import SpecError, expected

RETRIEVAL, STREAMING = 0, 1


@dataclass(frozen=True)
class HeadGates:
    """`values` f64 [layers, kv_heads]. Made by `read_head_gates`, or from an array by `head_gates`."""

    values: numpy.ndarray

    @property
    def layers(self) -> int:
        """Lines of the file."""
        return self.values.shape[0]

    @property
    def kv_heads(self) -> int:
        """Columns of the file."""
        return self.values.shape[1]

    def at_least(self, threshold: float) -> numpy.ndarray:
        """int32 [layers, kv_heads], the tensor `classes` of each layer: 0 (retrieval) where the gate, of which 0 to 1
        counts, is the threshold or more, else 1 (streaming). So DuoAttention selects: what training left a little below
        0 is 0."""
        return numpy.where(self.values.clip(0, 1) >= threshold, RETRIEVAL, STREAMING).astype(numpy.int32)

    def by_share(self, share: float) -> numpy.ndarray:
        """The same, with this share of all heads (0 to 1, rounded to whole heads) retrieving: those with the largest
        gates, of equal ones those of earlier layers, then of lower heads."""
        if not isinstance(share, (int, float)) or not 0 <= share <= 1:
            nearest = min(max(share, 0.0), 1.0) if isinstance(share, (int, float)) and share == share else 0.5
            raise expected(SpecError, "share", "a share of the heads from 0 to 1", share, nearest=nearest)
        count = int(share * self.values.size + 0.5)
        classes = numpy.full(self.values.size, STREAMING, numpy.int32)
        classes[numpy.argsort(-self.values.reshape(-1), kind="stable")[:count]] = RETRIEVAL
        return classes.reshape(self.values.shape)


def head_gates(values: object) -> HeadGates:
    """Of anything that NumPy makes a matrix of numbers of: [layers, kv_heads]. Errors: SpecError."""
    try:
        gates = numpy.array(values, numpy.float64)
    except (TypeError, ValueError):
        raise expected(SpecError, "gates", "numbers [layers, kv_heads]", values) from None
    if gates.ndim != 2 or not gates.size:
        raise expected(SpecError, "gates", "numbers [layers, kv_heads]", f"shape {list(gates.shape)}")
    for layer, head in numpy.argwhere(~numpy.isfinite(gates)):
        raise expected(SpecError, f"gates[{layer}][{head}]", "a finite number", float(gates[layer, head]))
    return HeadGates(gates)


def read_head_gates(path: str | os.PathLike) -> HeadGates:
    """The published files: numbers separated by tabs or spaces. Errors: SpecError, which names the line and the head,
    counted from 0; OSError."""
    rows: list[list[float]] = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        where = f"{path}:{number}"
        row: list[float] = []
        for head, word in enumerate(line.split()):
            try:
                row.append(float(word))
            except ValueError:
                raise expected(SpecError, f"{where}: head {head}", "a number", word[:40]) from None
        if row and rows and len(row) != len(rows[0]):
            legal = f"a gate for each of {len(rows[0])} heads, as in the first line"
            raise expected(SpecError, where, legal, len(row))
        if row:
            rows.append(row)
    if not rows:
        raise SpecError(f"{path}: expected a line for each layer, got none")
    return head_gates(rows)


def read_streaming_sizes(path: str | os.PathLike) -> tuple[int, int]:
    """(sink, recent) from the JSON file beside the gates: those to deploy with where it names any, else those that the
    gates were found with. Errors: SpecError, OSError."""
    try:
        config = json.loads(Path(path).read_text())
    except ValueError as error:
        raise SpecError(f"{path}: expected JSON: {error}") from None
    sizes = []
    for name in ("sink_size", "recent_size"):
        size = config.get(f"deploy_{name}") if isinstance(config, dict) else None
        size = config.get(name) if size is None and isinstance(config, dict) else size
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**30:
            raise expected(SpecError, f"{path}: {name}", "a number of tokens", size)
        sizes.append(size)
    return sizes[0], sizes[1]
