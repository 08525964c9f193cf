# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding of three sequences, for tests of kernels and plans."""

import attn
import numpy
import oracle

Q_HEADS, KV_HEADS, DIM, PAGES = 4, 2, 64, 12
LENGTHS = [5, 37, 64]


def spec(**changes):
    given = dict(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", kv=[attn.Paged()])
    return attn.Spec(**(given | dict(see=attn.causal(), name="decode") | changes))


class Problem:
    """Decoding of three sequences in scattered pages."""

    def __init__(self, seed=0, rows=3):
        rng = numpy.random.default_rng(seed)
        self.q = rng.standard_normal((rows, Q_HEADS, DIM)).astype(numpy.float16)
        self.k, self.v = (
            rng.standard_normal((PAGES, 16, KV_HEADS, DIM)).astype(numpy.float16) for _ in range(2)
        )
        pages = iter(rng.permutation(PAGES))
        self.table = numpy.zeros((len(LENGTHS), 4), numpy.int32)
        for sequence, length in enumerate(LENGTHS):
            for column in range(-(-length // 16)):
                self.table[sequence, column] = next(pages)
        self.lengths = list(LENGTHS)

    @property
    def batch(self):
        return {
            "q": self.q,
            "kv.k_pages": self.k,
            "kv.v_pages": self.v,
            "kv.block_table": self.table,
            "kv.lengths": self.lengths,
        }

    @property
    def tables(self):
        """The tables that a planner of the device takes."""
        return {
            "kv.lengths": numpy.array(self.lengths, numpy.int32),
            "kv.block_table": self.table.copy(),
            "q_start": numpy.arange(len(self.lengths) + 1, dtype=numpy.int32),
        }

    def expected(self):
        results = []
        for row, length in enumerate(self.lengths):
            k, v = (pages[self.table[row]].reshape(-1, KV_HEADS, DIM)[:length] for pages in (self.k, self.v))
            results.append(oracle.attend(self.q[row], k, v))
        return numpy.array([o for o, _ in results]), numpy.array([lse for _, lse in results])

    def check(self, o, lse=None):
        expected, of_rows = self.expected()
        assert oracle.error(numpy.asarray(o), expected) < 1e-3
        if lse is not None:
            assert numpy.abs(numpy.asarray(lse) - of_rows).max() < 2e-3
