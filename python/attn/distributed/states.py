# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of one attention over tokens that ranks share, and heads that ranks share: one collective each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import GroupError, PlanError, TensorError, expected
from .exchange import Exchange, make_exchange
from .groups import ALONE, Group, agree, all_gather, all_to_all, groups_of, pack, unpack
from .state_kernels import merge_kernel, name_of, serves
from .steps import merge_stacked


class Partial:
    """Memory for a rank's results, out [rows, heads, value_dim] of 16 bits and lse [rows, heads] in float32, so that one
    collective sends both. A kernel writes to them: `Kernel.run(..., out=partial.out, lse=partial.lse)`."""

    def __init__(self, rows: int, heads: int, value_dim: int, like: Tensor):
        size = rows * heads * value_dim * like.element_size()
        self._memory = like.new_empty(1, max(-(-(size + 4 * rows * heads) // 16), 1) * 16, dtype=torch.uint8)
        self._views = size, (rows, heads, value_dim), like.dtype
        out, lse = self._read(self._memory)
        self.out, self.lse = out[0], lse[0]
        self._exchange: Exchange | None = None
        self.why_gathered = "Partial.shared makes memory that ranks exchange"
        """Why `merged` gathers by a collective; empty if ranks write into each other's memory."""

    @classmethod
    def shared(
        cls,
        rows: int,
        heads: int,
        value_dim: int,
        like: Tensor,
        group: Any = None,
        *,
        timeout: float = 30.0,
    ) -> Partial:
        """Make such memory on all ranks of a group together, for steps whose latency counts. `merged` is one kernel, which
        waits for the other ranks, where ranks can write into each other's memory: GPUs of one host, or processes of the
        host device. Elsewhere it gathers by a collective, and `why_gathered` says why. Results have the same bits.

        group    as of `attend`, of one dimension
        timeout  seconds that a step waits for another rank

        Each rank runs the steps of one Partial one after the other, on one stream. Raises TensorError, GroupError.
        """
        found = _one(group)
        if not 0.001 <= timeout <= 2e6:
            raise expected(TensorError, "timeout", "0.001 to 2000000 seconds", timeout)
        said = {
            "rows": rows,
            "heads": heads,
            "value_dim": value_dim,
            "dtype": str(like.dtype),
            "timeout": timeout,
        }
        agree([found], said)
        partial = cls(rows, heads, value_dim, like)
        items = rows * heads
        if found.size == 1 or not items or not serves(found.size, value_dim):
            partial.why_gathered = (
                f"no kernel exchanges {items} outputs of {value_dim} between {found.size} ranks"
            )
            return partial
        partial._exchange, partial.why_gathered = make_exchange(
            found, items, value_dim, like.dtype, like.device, timeout
        )
        return partial

    def _read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        size, shape, dtype = self._views
        ranks, count = len(memory), shape[0] * shape[1]
        out = (
            memory[:, :size].view(dtype).unflatten(1, shape)
            if count
            else memory.new_empty(ranks, *shape, dtype=dtype)
        )
        return out, memory[:, size : size + 4 * count].view(torch.float32).unflatten(1, shape[:2])

    def clear(self) -> None:
        """Write the state of no tokens."""
        self.out.zero_()
        self.lse.fill_(-torch.inf)

    def merged(self, group: Any = None, *, return_lse: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return out and lse over the tokens of all ranks, on every rank. All ranks call it, with as many rows. Raises
        GroupError; of an exchange on GPUs, in the first call after the failure is known, as `check` does."""
        found = _one(group)
        if self._exchange is None:
            out, lse = self._merge(all_gather(found, self._memory, 1).flatten(0, 1))
        else:
            out, lse = torch.empty_like(self.out), torch.empty_like(self.lse)
            self._exchange.run(found, out, lse, self.out, self.lse)
        return out, lse if return_lse else None

    def _merge(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Merge the results of ranks, a line of memory for each."""
        _, (rows, heads, value_dim), dtype = self._views
        if not rows * heads or not serves(len(memory), value_dim):
            parts = self._read(memory)
            return merge_stacked(*parts), parts[1].logsumexp(0)
        out, lse = torch.empty_like(self.out), torch.empty_like(self.lse)
        kernel = merge_kernel(len(memory), rows * heads, value_dim, dtype, name_of(out.device))
        kernel.launch(out, lse, memory)
        return out, lse

    def check(self) -> None:
        """Raise a GroupError if a rank did not answer in time in a step that has ended, such as one of a replayed graph. Its
        results are NaN. Does not wait for the GPU."""
        if self._exchange is not None:
            self._exchange.check()


def merge(out: Tensor, lse: Tensor, group: Any = None, *, heads: str = "all") -> tuple[Tensor, Tensor]:
    """Merge the results of ranks whose keys and values are different tokens, as `Kernel.run(return_lse=True)` gives them.

    out, lse  [rows, heads, value_dim] of 16 bits and float32 [rows, heads], for the same rows and heads on every rank. A
              rank whose tokens no row sees gives out 0 and lse -inf
    group     as of `attend`, of one dimension
    heads     "all": every rank gets all heads, by one all-gather; "own": rank r of n gets the r-th of n equal ranges of heads,
              by one all-to-all, in which less is sent

    Returns out in its dtype, and lse. Merged in float32, in the order of ranks. Raises TensorError, GroupError.
    """
    if not isinstance(out, Tensor) or out.ndim != 3 or out.dtype not in (torch.bfloat16, torch.float16):
        raise expected(TensorError, "out", "bfloat16 or float16 [rows, heads, value_dim]", out)
    if not isinstance(lse, Tensor) or lse.shape != out.shape[:2] or lse.dtype != torch.float32:
        raise expected(TensorError, "lse", f"float32 {list(out.shape[:2])}", lse)
    if heads == "all":
        partial = Partial(*out.shape, like=out)
        partial.out.copy_(out)
        partial.lse.copy_(lse)
        merged, total = partial.merged(group)
        assert total is not None
        return merged, total
    if heads != "own":
        raise expected(TensorError, "heads", "'all' or 'own'", heads)
    found = _one(group)
    if out.shape[1] % found.size:
        raise expected(TensorError, "out", f"heads that the {found.size} ranks divide", out)
    partial = Partial(len(out), out.shape[1] // found.size, out.shape[2], like=out)
    sent = partial._memory.new_empty(found.size, partial._memory.shape[1])
    for part, whole in zip(partial._read(sent), (out, lse), strict=True):
        part.copy_(whole.unflatten(1, (found.size, -1)).transpose(0, 1))
    return partial._merge(all_to_all(found, sent, [1] * found.size, [1] * found.size))


def spread_heads(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Return the KV heads of each rank: as many on each, with costs as equal as that permits.

    costs   of each KV head, such as the bytes of its tokens: a head that retrieves beside heads that stream
    ranks   which divide the number of heads

    The costliest head first goes to the rank with the least cost. Raises PlanError.
    """
    costs = [float(cost) for cost in costs]
    if ranks < 1 or len(costs) % ranks:
        raise expected(PlanError, "ranks", f"a divisor of the {len(costs)} heads", ranks)
    found: list[list[int]] = [[] for _ in range(ranks)]
    sums = [0.0] * ranks
    for head in sorted(range(len(costs)), key=lambda head: (-costs[head], head)):
        fits = [rank for rank in range(ranks) if len(found[rank]) < len(costs) // ranks]
        best = min(fits, key=lambda rank: (sums[rank], rank))
        found[best].append(head)
        sums[best] += costs[head]
    return [sorted(heads) for heads in found]


def gather_heads(
    tensor: Tensor, group: Any = None, *, heads: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """Return all heads of a tensor [rows, heads, ...] of which each rank has a part, on every rank.

    heads   the KV heads of each rank, as `spread_heads` returns them; by default rank r of n has the r-th of n equal ranges.
            Query heads follow their KV head

    Raises TensorError, GroupError.
    """
    found = _one(group)
    gathered = all_gather(found, pack(tensor), len(tensor))
    parts = [unpack(lines, tensor)[0] for lines in gathered]
    whole = torch.cat(parts, dim=1)
    if heads is None:
        return whole
    order = numpy.concatenate([numpy.asarray(each, numpy.int64) for each in heads])
    if (
        len(heads) != found.size
        or sorted(order.tolist()) != list(range(len(order)))
        or whole.shape[1] % len(order)
    ):
        raise expected(
            TensorError, "heads", f"each KV head on one of {found.size} ranks", [list(h) for h in heads]
        )
    back = torch.from_numpy(numpy.argsort(order)).to(whole.device)
    return whole.unflatten(1, (len(order), -1)).index_select(1, back).flatten(1, 2)


def _one(given: Any) -> Group:
    if isinstance(given, Group):
        return given
    tokens, heads = groups_of(given)
    if heads is not ALONE:
        raise expected(GroupError, "group", "a group of one dimension", given)
    return tokens
