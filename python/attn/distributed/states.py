# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of one attention over tokens that ranks share, and heads that ranks share: one collective each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from ..errors import GroupError, PlanError, TensorError, expected
from .exchange import Exchange, make_exchange
from .groups import ALONE, Group, agree, all_gather, all_to_all, groups_of, pack, unpack
from .state_kernels import merge_kernel, name_of, serves


class Layout(NamedTuple):
    """How results lie in lines of memory: out [rows, heads, value_dim] of 16 bits, then lse [rows, heads] in float32, in
    a multiple of 16 bytes."""

    rows: int
    heads: int
    value_dim: int
    dtype: torch.dtype

    def empty(self, lines: int, device: torch.device) -> Tensor:
        """Return unwritten memory [lines, bytes]."""
        size = self._out_bytes + 4 * self.rows * self.heads
        return torch.empty(lines, max(-(-size // 16), 1) * 16, dtype=torch.uint8, device=device)

    @property
    def _out_bytes(self) -> int:
        return self.rows * self.heads * self.value_dim * self.dtype.itemsize

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of all lines: out [lines, rows, heads, value_dim] and lse [lines, rows, heads]."""
        count, lines = self.rows * self.heads, len(memory)
        shape = self.rows, self.heads, self.value_dim
        if not count:
            return (
                torch.empty(lines, *shape, dtype=self.dtype, device=memory.device),
                torch.empty(lines, *shape[:2], device=memory.device),
            )
        out = memory[:, : self._out_bytes].view(self.dtype).unflatten(1, shape)
        lse = memory[:, self._out_bytes : self._out_bytes + 4 * count].view(torch.float32)
        return out, lse.unflatten(1, shape[:2])

    def merge(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Merge the results of all lines; returns out and lse."""
        outs, lses = self.read(memory)
        items = self.rows * self.heads
        if not serves(len(memory), items, self.value_dim):
            return merge_stacked(outs, lses), lses.logsumexp(0)
        out, lse = torch.empty_like(outs[0]), torch.empty_like(lses[0])
        kernel = merge_kernel(len(memory), items, self.value_dim, self.dtype, name_of(out.device))
        kernel.launch(out, lse, memory)
        return out, lse


class Partial:
    """Memory for a rank's results, out [rows, heads, value_dim] of 16 bits and lse [rows, heads] in float32, so that one
    collective sends both. A kernel writes to them: `Kernel.run(..., out=partial.out, lse=partial.lse)`."""

    def __init__(self, rows: int, heads: int, value_dim: int, like: Tensor):
        self._layout = Layout(rows, heads, value_dim, like.dtype)
        self._memory = self._layout.empty(1, like.device)
        out, lse = self._layout.read(self._memory)
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
        if not serves(found.size, items, value_dim):
            partial.why_gathered = (
                f"no kernel exchanges {items} outputs of {value_dim} between {found.size} ranks"
            )
            return partial
        partial._exchange, partial.why_gathered = make_exchange(
            found, items, value_dim, like.dtype, like.device, timeout
        )
        return partial

    def clear(self) -> None:
        """Write the state of no tokens."""
        self.out.zero_()
        self.lse.fill_(-torch.inf)

    def merged(self, group: Any = None, *, return_lse: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return out and lse over the tokens of all ranks, on every rank. All ranks call it, with as many rows. Raises
        GroupError; of an exchange on GPUs, in the first call after the failure is known, as `check` does."""
        found = _one(group)
        if self._exchange is None:
            out, lse = self._layout.merge(all_gather(found, self._memory, 1).flatten(0, 1))
        else:
            out, lse = torch.empty_like(self.out), torch.empty_like(self.lse)
            self._exchange.run(found, out, lse, self.out, self.lse)
        return out, lse if return_lse else None

    def check(self) -> None:
        """Raise a GroupError if a rank did not answer in time in a step that has ended, such as one of a replayed graph. Its
        results are NaN. Does not wait for the GPU."""
        if self._exchange is not None:
            self._exchange.check()


_KEPT = 4  # A ring is for ranks that cannot hold much.


class Merged:
    """States over `count` parts of the tokens, merged in float32 in the order in which they are added. Up to four are kept
    until results are asked for, and one kernel merges them. More are merged as they come, but for the last one."""

    def __init__(self, count: int, rows: int, heads: int, value_dim: int, like: Tensor):
        self._layout = Layout(rows, heads, value_dim, like.dtype)
        keeps = count <= _KEPT and serves(count, rows * heads, value_dim)
        self._memory = self._layout.empty(count, like.device) if keeps else None
        self._states: list[tuple[Tensor, Tensor]] = []
        self._added = 0

    def room(self) -> tuple[Tensor, Tensor] | None:
        """Return memory for the next state, if states are kept."""
        if self._memory is None:
            return None
        out, lse = self._layout.read(self._memory)
        return out[self._added], lse[self._added]

    def add(self, out: Tensor, lse: Tensor) -> None:
        """Add the next state: out [rows, heads, value_dim] of 16 bits, lse [rows, heads] in float32; in `room`, if there is."""
        self._added += 1
        if self._memory is not None:
            return
        if len(self._states) == 2:
            kept, added, total = self._weights()
            (first, _), (second, _) = self._states
            scaled = first.mul_(kept) if first.dtype == torch.float32 else first * kept
            self._states = [(scaled.addcmul_(second, added), total)]
        self._states.append((out, lse))

    def results(self) -> tuple[Tensor, Tensor]:
        """Return out, of 16 bits, and lse."""
        if self._memory is not None:
            return self._layout.merge(self._memory)
        if len(self._states) == 1:
            return self._states[0]
        kept, added, total = self._weights()
        (first, _), (second, _) = self._states
        return torch.addcmul(first * kept, second, added, out=torch.empty_like(second)), total

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        (_, first), (_, second) = self._states
        added = torch.where(second == -torch.inf, 0, torch.sigmoid(second - first)).unsqueeze(-1)
        return 1 - added, added, torch.logaddexp(first, second)


# Below every LSE of a token. If all states are without tokens, their weights are equal.
_LEAST = -1e30


def merge_stacked(out: Tensor, lse: Tensor) -> Tensor:
    """Merge states that lie one after the other: out [parts, ..., value_dim], lse [parts, ...] in float32. Returns out of
    its dtype; its LSE is lse.logsumexp(0). Few launches, since a step of decoding waits for each."""
    weights = lse.clamp_min(_LEAST).softmax(0)
    return (out * weights.unsqueeze(-1)).sum(0).to(out.dtype)


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
    layout = Layout(len(out), out.shape[1] // found.size, out.shape[2], out.dtype)
    sent = layout.empty(found.size, out.device)
    for part, whole in zip(layout.read(sent), (out, lse), strict=True):
        part.copy_(whole.unflatten(1, (found.size, -1)).transpose(0, 1))
    return layout.merge(all_to_all(found, sent, [1] * found.size, [1] * found.size))


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
