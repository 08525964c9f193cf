# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The savings of a forest against copies of shared tokens: rows, memory, floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy

from ..describe.forest import Forest
from ..errors import SpecError, expected
from .packing import Packed


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder that a report needs. `of` reads them from a configuration of Transformers."""

    q_heads: int
    kv_heads: int
    head_dim: int
    layers: int = 1
    linear_weights: int = 0
    """Weights of one layer that each token is multiplied by: projections and the part of its MLP that it takes."""
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for size in fields(self):
            given, least = getattr(self, size.name), 0 if size.name == "linear_weights" else 1
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise expected(
                    SpecError, f"ModelShape({size.name})", f"a number from {least} on", given, nearest=least
                )

    @staticmethod
    def of(config: Any) -> ModelShape:
        """Read the sizes of a decoder with grouped attention and gated MLPs, dense or of experts. SpecError if the
        configuration lacks one of its sizes."""
        needed = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
        for name in needed:
            if not isinstance(getattr(config, name, None), int):
                raise expected(SpecError, f"config.{name}", "a number", getattr(config, name, None))
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        experts = getattr(config, "num_experts_per_tok", None) or 0
        width = config.moe_intermediate_size * experts if experts else config.intermediate_size
        weights = config.hidden_size * (dim * 2 * (heads + kv_heads) + 3 * width)
        return ModelShape(heads, kv_heads, dim, config.num_hidden_layers, weights)


@dataclass(frozen=True)
class Report:
    """A forest against copies. `str` of it is a table."""

    shape: ModelShape
    rows: int
    """Rows with each token once."""
    replicated_rows: int
    """Rows with tokens of its own for each trajectory."""
    pairs: int
    """Pairs of a row and a token that it sees, in the forest."""
    replicated_pairs: int

    @property
    def sharing(self) -> float:
        """The sharing ratio: replicated rows by rows. For N responses of R tokens to a prompt of P tokens it is N (P +
        R) / (P + N R). (Source: arXiv 2605.15422, rho.)"""
        return self.replicated_rows / self.rows

    @property
    def saved_bytes(self) -> dict[str, int]:
        """Saved bytes of one layer's activations that attention keeps for its backward pass, under "kv", "q" and "lse"."""
        shape, rows = self.shape, self.replicated_rows - self.rows
        return {
            "kv": rows * 2 * shape.kv_heads * shape.head_dim * shape.element_bytes,
            "q": rows * shape.q_heads * shape.head_dim * shape.element_bytes,
            "lse": rows * shape.q_heads * 4,
        }

    @property
    def flops(self) -> int:
        """Operations of forward and backward of all layers, without embeddings and head."""
        return self._flops(self.rows, self.pairs)

    @property
    def replicated_flops(self) -> int:
        """Operations with copies."""
        return self._flops(self.replicated_rows, self.replicated_pairs)

    def _flops(self, rows: int, pairs: int) -> int:
        """Return operations. Attention has two products forward and five backward, weights one and two."""
        shape = self.shape
        attention = 7 * 2 * pairs * shape.q_heads * shape.head_dim
        return shape.layers * (attention + 3 * 2 * rows * shape.linear_weights)

    def __str__(self) -> str:
        saved = self.saved_bytes
        kv, q, lse, total = (size / 1e6 for size in (*saved.values(), sum(saved.values())))
        flops, replicated = self.flops / 1e12, self.replicated_flops / 1e12
        return (
            f"rows      {self.rows:,} in place of {self.replicated_rows:,}: {self.sharing:.2f} times fewer\n"
            f"memory    K, V {kv:,.1f} MB + Q {q:,.1f} MB + LSE {lse:,.1f} MB = {total:,.1f} MB less in each layer\n"
            f"work      {flops:.3g} TFLOP in place of {replicated:.3g}: {replicated / flops:.2f} times less"
        )


def report(packed: Packed | Forest, shape: ModelShape | Any) -> Report:
    """Compute the savings of a micro-batch. In a Forest, every leaf ends a trajectory.

    shape  a ModelShape, or a configuration of Transformers

    Raises SpecError.
    """
    if isinstance(packed, Packed):
        forest, lengths = packed.forest, packed.lengths
    elif isinstance(packed, Forest):
        forest = packed
        leaves = numpy.setdiff1d(numpy.arange(forest.nodes), forest.parent)
        sizes = numpy.diff(forest.node_start)
        lengths = numpy.array([int(sizes[forest.path(int(leaf))].sum()) for leaf in leaves])
    else:
        raise expected(SpecError, "packed", "what attn.training.pack gives, or an attn.Forest", packed)
    if forest.tokens == 0:
        raise SpecError("packed: expected tokens, got a forest of none")
    if not isinstance(shape, ModelShape):
        shape = ModelShape.of(shape)
    above = numpy.zeros(forest.nodes, numpy.int64)
    sizes = numpy.diff(forest.node_start).astype(numpy.int64)
    for node, parent in enumerate(forest.parent.tolist()):
        above[node] = above[parent] + sizes[parent] if parent >= 0 else 0
    lengths = lengths.astype(numpy.int64)
    return Report(
        shape,
        rows=forest.tokens,
        replicated_rows=int(lengths.sum()),
        pairs=int((sizes * above + sizes * (sizes + 1) // 2).sum()),
        replicated_pairs=int((lengths * (lengths + 1) // 2).sum()),
    )
