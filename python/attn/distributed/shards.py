# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that hold a rank's rows, and the whole batch from those of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import TensorError, expected
from .groups import ALONE, Group, all_gather, groups_of, pack, unpack
from .splits import Split


def shard(
    tensor: Tensor, split: Split, group: Any = None, *, dim: int = 0, rank: int | None = None
) -> Tensor:
    """Return this rank's rows of a tensor of the whole batch, in the order that `attend` reads.

    tensor  any dtype and device
    split   an attn.distributed.Split
    group   as of `attend`
    dim     the dimension of rows: 0 of packed tensors, 1 of [batch, seq, ...]
    rank    another rank of the split, for which no group is needed

    Gradients pass. Raises TensorError.
    """
    dim = _checked(tensor, split, dim)
    if tensor.shape[dim] != split.tokens:
        raise expected(TensorError, "tensor", f"{split.tokens} rows in dimension {dim}", tensor)
    if rank is None:
        rank, _ = _rank_of(split, group)
    elif not 0 <= rank < split.ranks:
        raise expected(TensorError, "rank", f"a number from 0 to {split.ranks - 1}", rank)
    return tensor.index_select(dim, torch.from_numpy(split.rows(rank)).to(tensor.device))


def unshard(tensor: Tensor, split: Split, group: Any = None, *, dim: int = 0) -> Tensor:
    """Return the whole batch, on every rank, from the ranks' rows. Arguments as of `shard`. No gradient passes. All ranks
    call it. Raises TensorError, GroupError."""
    dim = _checked(tensor, split, dim)
    rank, groups = _rank_of(split, group)
    if tensor.shape[dim] != split.count(rank):
        raise expected(TensorError, "tensor", f"{split.count(rank)} rows in dimension {dim}", tensor)
    rows = tensor.detach().movedim(dim, 0)
    flat = rows.reshape(len(rows), -1) if rows.numel() else rows.reshape(len(rows), *rows.shape[1:])
    counts = [split.count(each) for each in range(split.ranks)]
    lines = pack(flat)
    for gathered in groups:  # First along the last dimension of a mesh.
        lines = _gather(gathered, lines, max(counts))
    found = torch.cat([lines[i * max(counts) :][:count] for i, count in enumerate(counts)])
    order = torch.cat([torch.from_numpy(split.rows(each)) for each in range(split.ranks)])
    whole = unpack(found, flat)[0].reshape(len(found), *rows.shape[1:])
    return torch.empty_like(whole).index_copy_(0, order.to(whole.device), whole).movedim(0, dim)


def _gather(group: Group, lines: Tensor, rows: int) -> Tensor:
    rows = rows if len(lines) <= rows else len(lines)
    return all_gather(group, lines, rows).flatten(0, 1)


def _rank_of(split: Split, group: Any) -> tuple[int, list[Group]]:
    tokens, heads = groups_of(group)
    ranks = tokens.size * heads.size
    if ranks != split.ranks:
        raise expected(
            TensorError, "split", f"a part for each of the {ranks} ranks of the group", split.ranks
        )
    return tokens.rank * heads.size + heads.rank, [each for each in (heads, tokens) if each is not ALONE]


def _checked(tensor: Any, split: Any, dim: int) -> int:
    if not isinstance(tensor, Tensor):
        raise expected(TensorError, "tensor", "a tensor of PyTorch", tensor)
    if not isinstance(split, Split):
        raise expected(TensorError, "split", "an attn.distributed.Split", split)
    if isinstance(dim, bool) or not isinstance(dim, int) or not -tensor.ndim <= dim < tensor.ndim:
        raise expected(TensorError, "dim", f"a dimension of {list(tensor.shape)}", dim)
    return dim % tensor.ndim
