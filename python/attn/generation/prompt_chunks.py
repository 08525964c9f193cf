# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prompts whose sequences hold different numbers of tokens already: what is new of each is read from the same column on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import cache_argument


@dataclass(frozen=True)
class Chunk:
    """The new tokens of each sequence, with padding behind them."""

    ids: Tensor
    """i64[sequences, columns]"""
    mask: Tensor
    """bool[sequences, held + columns]; behind the padding in front of what a sequence holds."""
    places: Tensor
    """i64[sequences, columns], positions of tokens."""
    last: Tensor
    """i64[sequences], the column of each sequence's last token."""


def chunk_behind(ids: Tensor, mask: Tensor, held: Sequence[int]) -> Chunk:
    """Of prompts `[sequences, columns]` with padding in front, and what is held of each. Waits for the device."""
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
    """Logits behind each prompt, of which a cache holds the first `held` tokens: `[sequences, vocabulary]`."""
    chunk = chunk_behind(ids, mask, held)
    kept, row = chunk.last.unique(return_inverse=True)  # columns of which there are logits, for all sequences
    out = model(
        input_ids=chunk.ids,
        attention_mask=chunk.mask,
        position_ids=chunk.places,
        use_cache=True,
        logits_to_keep=kept,
        **cache_argument(model, cache),
    )
    return out.logits[torch.arange(len(row), device=row.device), row]
