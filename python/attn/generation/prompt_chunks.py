# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads prompts whose sequences already have different numbers of tokens in the cache: new tokens of all begin at one
column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import cache_argument


@dataclass(frozen=True)
class Chunk:
    """The new tokens of each sequence, with padding after them."""

    ids: Tensor
    """i64[sequences, columns]"""
    mask: Tensor
    """bool[sequences, held + columns]; padding precedes the tokens that a sequence has in the cache."""
    places: Tensor
    """i64[sequences, columns], positions of tokens."""
    last: Tensor
    """i64[sequences], the column of each sequence's last token."""


def chunk_behind(ids: Tensor, mask: Tensor, held: Sequence[int]) -> Chunk:
    """Return the chunk of prompts `[sequences, columns]` with padding before them, and `held` tokens of each in the
    cache. Waits for the device."""
    before = torch.tensor(held, device=ids.device)[:, None]
    count = mask.sum(1, keepdim=True) - before
    column = torch.arange(int(count.max()), device=ids.device)
    shown = column < count
    from_end = (ids.shape[1] - count + column).clamp(max=ids.shape[1] - 1)
    in_front = torch.arange(max(held), device=ids.device) >= max(held) - before
    places = (before + column).masked_fill(~shown, 0)
    return Chunk(ids.gather(1, from_end), torch.cat([in_front, shown], 1), places, count[:, 0] - 1)


def read_behind(
    model: nn.Module, cache: PagedCache, ids: Tensor, mask: Tensor, held: Sequence[int]
) -> Tensor:
    """Return the logits after each prompt, of which a cache holds the first `held` tokens: `[sequences, vocabulary]`."""
    chunk = chunk_behind(ids, mask, held)
    kept, row = chunk.last.unique(return_inverse=True)  # Columns that have logits, for all sequences.
    out = model(
        input_ids=chunk.ids,
        attention_mask=chunk.mask,
        position_ids=chunk.places,
        use_cache=True,
        logits_to_keep=kept,
        **cache_argument(model, cache),
    )
    return out.logits[torch.arange(len(row), device=row.device), row]
