# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How ranks share one attention: which tensors travel, and which part of the work each rank does.

    all_gather   every rank gets all keys and values, and computes its rows
    ring         keys and values pass from rank to rank, beside the computation of the part that came before
    heads        rows are exchanged for heads: every rank gets all rows of its heads, and computes as one GPU would

Heads may be exchanged within a small group of ranks, and tokens shared between such groups. A form takes and gives
packed tensors [rows, heads, dim] of the rank's own rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy
import torch
from torch import Tensor

from .groups import Exchange, Group, all_gather, all_to_all, pack, unpack
from .sequences import Runs, Sequences, expanded, merged
from .states import Merged
from .steps import Added, Kernels, Step, sink_terms, with_sinks

Results = tuple[Tensor, Tensor]
Gradients = tuple[Tensor, Tensor]


class Form(Protocol):
    """A form, prepared for one batch and split."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Results, tuple[Tensor, ...]]:
        """Return out and lse of the rank's rows, and the tensors that `backward` needs."""
        ...

    def backward(
        self, saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the gradients of q, k, v, and the rank's terms of the gradient of sinks."""
        ...


def _index(rows: numpy.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(numpy.ascontiguousarray(rows, numpy.int64)).to(device)


def _sum_of_terms(saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None) -> Tensor | None:
    return None if sinks is None else sink_terms((saved[3], saved[4]), gradients, sinks).sum(0)


class Gathered:
    """Tensors of all ranks in the order of the whole batch, and sums of their gradients back on the ranks."""

    def __init__(self, parts: list[Runs], group: Group, device: torch.device):
        self.group = group
        rows = [expanded(part) for part in parts]
        self.counts = [len(each) for each in rows]
        self.most = max(self.counts)
        order = numpy.concatenate(rows)
        places = numpy.empty(len(order), numpy.int64)
        places[order] = numpy.concatenate(
            [rank * self.most + numpy.arange(count) for rank, count in enumerate(self.counts)]
        )
        self._is_in_order = group.size == 1
        self._places, self._order = _index(places, device), _index(order, device)

    def gather(self, *tensors: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks: [tokens, ...] each."""
        if self._is_in_order:
            return list(tensors)
        lines = all_gather(self.group, pack(*tensors), self.most).flatten(0, 1)
        return unpack(lines, *tensors, rows=self._places)

    def add_up(self, *sums: Tensor) -> list[Tensor]:
        """Return this rank's rows of tensors [tokens, ...], added up over ranks in float32, in the order of ranks."""
        if self._is_in_order:
            return list(sums)
        own = self.counts[self.group.rank]
        lines = pack(*sums).index_select(0, self._order)
        found = all_to_all(self.group, lines, self.counts, [own] * self.group.size)
        parts = found.view(self.group.size, own, found.shape[1])
        total = [part.float() for part in unpack(parts[0], *sums)]
        for each in parts[1:]:
            for sum_, part in zip(total, unpack(each, *sums), strict=True):
                sum_ += part
        return [sum_.to(like.dtype) for sum_, like in zip(total, sums, strict=True)]


class AllGather:
    """All keys and values on every rank: one collective and one launch."""

    def __init__(
        self, kernels: Kernels, sequences: Sequences, parts: list[Runs], group: Group, device: torch.device
    ):
        self._gathered = Gathered(parts, group, device)
        self._step = Step(kernels, sequences, parts[group.rank], [(0, sequences.tokens)])

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Results, tuple[Tensor, ...]]:
        out, lse = with_sinks(*self._step.forward(q, *self._gathered.gather(k, v)), sinks)
        return (out, lse), (q, k, v, out, lse)

    def backward(
        self, saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, out, lse = saved
        d_q, *sums = self._step.backward(q, *self._gathered.gather(k, v), (out, lse), gradients)
        return d_q, *self._gathered.add_up(*sums), _sum_of_terms(saved, gradients, sinks)  # type: ignore[return-value]


class Ordered:
    """Gives the same bits for any number of ranks. No sum is divided between ranks: a rank computes the gradients of its rows
    from all keys, and those of its keys from all rows. Blocks of rows and of keys are the same for any split. `whole_tasks`: no
    task of rows is cut, as must be unless rows have the same bits in any plan."""

    def __init__(
        self,
        kernels: Kernels,
        sequences: Sequences,
        parts: list[Runs],
        group: Group,
        device: torch.device,
        block: int,
        whole_tasks: bool = True,
    ):
        self._gathered, self._block = Gathered(parts, group, device), block
        self._group = group
        own, everything = parts[group.rank], [(0, sequences.tokens)]
        self._of_rows = Step(kernels, sequences, own, everything, whole_tasks=whole_tasks)
        self._of_keys = Step(kernels, sequences, everything, own, cut=block)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Results, tuple[Tensor, ...]]:
        out, lse = with_sinks(*self._of_rows.forward(q, *self._gathered.gather(k, v)), sinks)
        return (out, lse), (q, k, v, out, lse)

    def backward(
        self, saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, out, lse = saved
        d_out, d_lse = gradients
        all_k, all_v = self._gathered.gather(k, v)
        d_q, _, _ = self._of_rows.backward(q, all_k, all_v, (out, lse), (d_out, d_lse))
        all_q, *results, all_d_out, all_d_lse = self._gathered.gather(q, out, lse, d_out, d_lse)
        _, d_k, d_v = self._of_keys.backward(all_q, k, v, (results[0], results[1]), (all_d_out, all_d_lse))
        terms = None
        if sinks is not None:  # Every rank has all terms; the first one gives their sum.
            terms = sink_terms((results[0], results[1]), (all_d_out, all_d_lse), sinks).sum(0)
            terms = terms if self._group.rank == 0 else torch.zeros_like(terms)
        return d_q, d_k, d_v, terms


class Ring:
    """Keys and values pass from rank to rank. The transfer of the next part is issued before the present one is
    computed."""

    def __init__(
        self, kernels: Kernels, sequences: Sequences, parts: list[Runs], group: Group, device: torch.device
    ):
        self._group = group
        self._sources = [(group.rank - step) % group.size for step in range(group.size)]
        self._counts = [sum(end - begin for begin, end in parts[source]) for source in self._sources]
        self._steps = [Step(kernels, sequences, parts[group.rank], parts[source]) for source in self._sources]

    def _passed(self, lines: Tensor, step: int) -> Exchange | None:
        """Issue the transfer of the lines of a step; the rank gets those of the next step. None at the last step."""
        return Exchange(self._group, lines, self._counts[step + 1]) if step + 1 < len(self._steps) else None

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Results, tuple[Tensor, ...]]:
        computed = sum(bool(step.pairs or i == 0) for i, step in enumerate(self._steps))
        merged_states, lines = Merged(computed, *q.shape[:2], v.shape[-1], q), pack(k, v)
        for i, step in enumerate(self._steps):
            exchange = self._passed(lines, i)
            if step.pairs or i == 0:
                given = unpack(lines, k, v) if i else (k, v)
                merged_states.add(*step.forward(q, *given, into=merged_states.room()))
            if exchange is not None:
                lines = exchange.wait()
        out, lse = with_sinks(*merged_states.results(), sinks)
        return (out, lse), (q, k, v, out, lse)

    def backward(
        self, saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Sums of dK and dV follow their keys and values, one step later, and end on the rank that owns them. They pass in 16
        bits where that loses nothing: the first part, and the whole sum, which its owner would round."""
        q, k, v, out, lse = saved
        lines, d_q, last = pack(k, v), Added(), len(self._steps) - 1
        sums: list[Added] = []
        exchange_of_sums = None
        for i, step in enumerate(self._steps):
            exchange = self._passed(lines, i)
            found: tuple[Tensor, ...] = ()
            if step.pairs or i == 0:
                found = step.backward(q, *(unpack(lines, k, v) if i else (k, v)), (out, lse), gradients)
                d_q.add(found[0])
            if exchange_of_sums is not None:
                likes = (k[:0], v[:0]) if i == 1 else (k[:0].float(), v[:0].float())
                sums = [Added(part) for part in unpack(exchange_of_sums.wait(), *likes)]
            if i == 0:
                sums = [Added(part) for part in found[1:]]
            else:
                for sum_, part in zip(sums, found[1:], strict=False):
                    sum_.add(part)
            if last:
                dtype = k.dtype if i in (0, last) else torch.float32
                exchange_of_sums = Exchange(
                    self._group,
                    pack(*(sum_.result(dtype) for sum_ in sums)),
                    self._counts[(i + 1) % len(self._counts)],
                )
            if exchange is not None:
                lines = exchange.wait()
        found = (
            tuple(unpack(exchange_of_sums.wait(), k[:0], v[:0]))
            if exchange_of_sums is not None
            else tuple(sum_.result(k.dtype) for sum_ in sums)
        )
        return d_q.result(q.dtype), found[0], found[1], _sum_of_terms(saved, gradients, sinks)


class Heads:
    """Rows are exchanged for heads within a group, before and after another form computes with all rows of the group.

    A rank sends each other rank that rank's heads of its own rows. With fewer KV heads than ranks, several ranks get the
    same KV head, and their gradients of it are added up."""

    def __init__(
        self,
        inner: Form,
        parts: list[Runs],
        group: Group,
        device: torch.device,
        heads: tuple[int, int],
    ):
        self._inner, self._group = inner, group
        rows = [expanded(part) for part in parts]
        self._counts = [len(each) for each in rows]
        together = numpy.concatenate(rows)
        order = numpy.argsort(together, kind="stable")
        back = numpy.empty_like(order)
        back[order] = numpy.arange(len(order))
        self._order, self._back = _index(order, device), _index(back, device)
        of_rank = max(heads[1] // group.size, 1)
        firsts = [rank * heads[1] // group.size for rank in range(group.size)]
        self._kv = _index(numpy.array([first + i for first in firsts for i in range(of_rank)]), device)
        self._repeats = group.size > heads[1]

    def _to_heads(self, *tensors: Tensor) -> list[Tensor]:
        """Return all rows of the group of this rank's share of heads; tensors [rows, ranks * heads, ...]."""
        ranks, own = self._group.size, self._counts[self._group.rank]
        shares = [t.unflatten(1, (ranks, -1)).transpose(0, 1).flatten(0, 1) for t in tensors]
        lines = all_to_all(self._group, pack(*shares), [own] * ranks, self._counts)
        return unpack(lines, *shares, rows=self._order)

    def _to_rows(self, *tensors: Tensor) -> list[Tensor]:
        """Return all heads of this rank's rows: the inverse of `_to_heads`."""
        ranks, own = self._group.size, self._counts[self._group.rank]
        lines = pack(*tensors).index_select(0, self._back)
        found = unpack(all_to_all(self._group, lines, self._counts, [own] * ranks), *tensors)
        return [each.unflatten(0, (ranks, own)).transpose(0, 1).flatten(1, 2) for each in found]

    def _own_sinks(self, sinks: Tensor | None) -> Tensor | None:
        return None if sinks is None else sinks.view(self._group.size, -1)[self._group.rank]

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Results, tuple[Tensor, ...]]:
        if self._repeats:
            k, v = (each.index_select(1, self._kv) for each in (k, v))
        q, k, v = self._to_heads(q, k, v)
        results, saved = self._inner.forward(q, k, v, self._own_sinks(sinks))
        out, lse = self._to_rows(*results)
        return (out, lse), saved

    def backward(
        self, saved: tuple[Tensor, ...], gradients: Gradients, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        d_out, d_lse = self._to_heads(*gradients)
        *found, terms = self._inner.backward(saved, (d_out, d_lse), self._own_sinks(sinks))
        d_q, d_k, d_v = self._to_rows(*found)
        if self._repeats:
            d_k, d_v = (self._add_repeated(each) for each in (d_k, d_v))
        if sinks is not None and terms is not None:
            whole = torch.zeros_like(sinks, dtype=torch.float32).view(self._group.size, -1)
            whole[self._group.rank] = terms
            terms = whole.view(-1)
        return d_q, d_k, d_v, terms

    def _add_repeated(self, gradient: Tensor) -> Tensor:
        """Add up the gradients of KV heads that several ranks had: [rows, ranks, dim] to [rows, kv_heads, dim]."""
        kv_heads = int(self._kv[-1]) + 1
        return gradient.float().unflatten(1, (kv_heads, -1)).sum(2).to(gradient.dtype)


def union(parts: list[Runs]) -> Runs:
    """Return the rows of several ranks together, ascending."""
    return merged([run for part in parts for run in part])
