# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's context_parallel with attn's attention: its buffers, its order of rows, and no DTensor in between."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import TensorError, expected
from .attention import attend
from .groups import groups_of
from .splits import Split, split


@contextlib.contextmanager
def patch_sdpa(group: Any = None, *, form: str = "all_gather", method: str = "zigzag") -> Iterator[None]:
    """Compute torch.nn.functional.scaled_dot_product_attention by `attend` while the context is open.

        with torch.distributed.tensor.experimental.context_parallel(mesh, buffers=..., buffer_seq_dims=...):
            with attn.distributed.patch_sdpa(mesh):
                model(tokens)

    group   the mesh of context_parallel, or as of `attend`
    form    as of `attend`
    method  "zigzag" is the order in which context_parallel shards buffers whose length 2 * ranks divides; "contiguous" is
            its order for others, and where its load balance is off

    Every rank has as many rows, queries and keys the same ones. Masks and dropout are refused: TensorError. Other errors as
    of `attend`.
    """
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention

    def replacement(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if attn_mask is not None or dropout_p:
            name, value_given = (
                ("attn_mask", attn_mask) if attn_mask is not None else ("dropout_p", dropout_p)
            )
            raise expected(
                TensorError, name, f"{'None' if name == 'attn_mask' else 0.0} under patch_sdpa", value_given
            )
        if query.ndim != 4:
            raise expected(TensorError, "query", "[batch, heads, seq, dim]", query)
        tokens, heads = groups_of(group)
        rows = _split(query.shape[2] * tokens.size * heads.size, tokens.size * heads.size, method)
        q, k, v = (each.transpose(1, 2) for each in (query, key, value))
        return attend(q, k, v, group, form=form, split=rows, causal=is_causal, scale=scale).transpose(1, 2)

    functional.scaled_dot_product_attention = replacement
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


@functools.lru_cache(maxsize=64)
def _split(tokens: int, ranks: int, method: str) -> Split:
    return split(tokens, ranks, method=method)
