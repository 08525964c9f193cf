# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensors of a point, which all sides read: made once, as a model has them.

Memory is [tokens, heads, dim], sequences one after the other, as attn, FlashAttention and FlashInfer take it; PyTorch's
backends get views of it with heads before tokens. Pages lie in the order of a random permutation.
"""

import itertools
import math
import re

from measuring.points import region
from measuring.report import SOFTCAP


def paged(torch, sequences, page):
    """Return sequences [tokens, heads, ...] as pages [pages, page, heads, ...] in the order of a random permutation,
    and a block table [batch, pages of a sequence], -1 past the end of shorter ones."""
    counts = [-(-len(tokens) // page) for tokens in sequences]
    first = sequences[0]
    generator = torch.Generator(device=first.device).manual_seed(1)
    place = torch.randperm(sum(counts), generator=generator, device=first.device)
    pool = first.new_zeros(sum(counts), page, *first.shape[1:])
    for tokens, mine in zip(sequences, place.split(counts), strict=True):
        whole = len(tokens) // page
        pool[mine[:whole]] = tokens[: whole * page].unflatten(0, (whole, page))
        if whole < len(mine):
            pool[mine[-1], : len(tokens) - whole * page] = tokens[whole * page :]
    return pool, torch.nn.utils.rnn.pad_sequence(place.int().split(counts), True, -1)


class Tensors:
    """q [rows, q_heads, dim], k and v [tokens, kv_heads, dim], all sequences together, and the tensors of a store."""

    def __init__(self, torch, point, device="cuda", numbers=None):
        """`numbers`: k and v; by default they are drawn."""
        self.torch, self.point, self.device = torch, point, device
        problem, self.lengths = point.problem, point.lengths
        self.rows = [point.rows or tokens for tokens in self.lengths]
        self.q = self.random(sum(self.rows), problem.q_heads, problem.dim)
        self.k, self.v = numbers or (
            self.random(sum(self.lengths), problem.kv_heads, dim) for dim in (problem.dim, problem.value_dim)
        )
        self.sink_logits = torch.randn(problem.q_heads, device=device) if problem.sinks else None
        self.table = self.pages = None
        if page := re.fullmatch(r"(?:paged|unified)<(\d+)>", problem.store):
            self.make_pages(int(page[1]))

    def make_pages(self, page):
        (k_pages, self.table), (v_pages, _) = (
            paged(self.torch, self.sequences(x), page) for x in (self.k, self.v)
        )
        self.pages = k_pages, v_pages

    def random(self, *shape):
        return self.torch.randn(shape, dtype=self.torch.bfloat16, device=self.device)

    def by_sequence(self, tensor):
        """Return [batch, tokens, heads, dim], for sequences of one length."""
        return tensor.view(len(self.lengths), -1, *tensor.shape[1:])

    def sequences(self, tensor):
        """Return a view [tokens, heads, ...] of each sequence."""
        return tensor.split(list(self.lengths))

    def heads_first(self):
        """Return views [batch, heads, tokens, dim] of q, k and v."""
        return tuple(self.by_sequence(x).transpose(1, 2) for x in (self.q, self.k, self.v))

    def starts(self, sizes):
        return [0, *itertools.accumulate(sizes)]

    def operands(self):
        """Return the operands of attn's run: keys and values."""
        if self.pages:
            return self.pages
        return (
            (self.k, self.v)
            if self.point.problem.store == "packed"
            else tuple(map(self.by_sequence, (self.k, self.v)))
        )

    def names(self):
        """Return the names of the operands."""
        return ("kv.k_pages", "kv.v_pages") if self.pages else ("kv.k", "kv.v")

    def batch(self):
        """Return the batch that attn plans."""
        given = {"q": self.q, "q_start": self.starts(self.rows), "kv.lengths": list(self.lengths)}
        given |= dict(zip(self.names(), self.operands(), strict=True))
        if self.pages:
            given["kv.block_table"] = self.table.cpu()
        if self.point.problem.store == "packed":
            given["kv.start"] = self.starts(self.lengths)
        return given | self.extras()

    def extras(self):
        return {} if self.sink_logits is None else {"sink_logits": self.sink_logits}

    def sampled(self, count=16):
        """Yield (sequence, row) at equal distances, including the first and the last row of each sequence."""
        for sequence, rows in enumerate(self.rows):
            yield from ((sequence, i * (rows - 1) // max(count - 1, 1)) for i in range(min(count, rows)))

    def expected(self, sequence, row):
        """Return the result of one row [q_heads, value_dim] in float32, from the definition."""
        torch, problem = self.torch, self.point.problem
        tokens, first = self.lengths[sequence], self.starts(self.lengths)[sequence]
        k, v = (x[first : first + tokens].float() for x in (self.k, self.v))
        q = self.q[self.starts(self.rows)[sequence] + row].float().view(problem.kv_heads, problem.group, -1)
        scores = torch.einsum("hgd,thd->hgt", q, k) / math.sqrt(problem.dim)
        if problem.softcap:
            scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
        seen = torch.zeros(tokens, dtype=torch.bool, device=self.device)
        for begin, end in region(problem.see).intervals(tokens - self.rows[sequence] + row):
            seen[max(begin, 0) : end] = True
        scores = scores.masked_fill(~seen, -math.inf)
        if self.sink_logits is not None:
            logits = self.sink_logits.view(problem.kv_heads, problem.group, 1)
            scores = torch.cat([scores, logits], dim=-1)
        weights = scores.softmax(dim=-1)[..., :tokens]
        return torch.einsum("hgt,thd->hgd", weights, v).reshape(problem.q_heads, -1)


def difference(found, expected):
    """Return the largest difference of a row and head [..., value_dim], as a share of the largest number in it."""
    worst = 0.0
    for a, b in zip(found.split(4096), expected.split(4096), strict=True):
        a, b = a.float(), b.float()
        shares = (a - b).abs().amax(-1) / b.abs().amax(-1).clamp(min=1e-6)
        worst = max(worst, shares.nan_to_num(nan=math.inf).max().item())
    return worst
