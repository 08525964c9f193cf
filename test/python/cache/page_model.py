# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model of attn.PagePool in Python lists."""

from collections import deque

import numpy


class PageModel:
    """Lists of `columns` pages, with `page_tokens` tokens a page at the left and the right end."""

    def __init__(self, pages, lists, columns, page_tokens):
        self.columns, self.page_tokens = columns, page_tokens
        self.free = deque(range(pages))
        self.lists = [([], []) for _ in range(lists)]

    def manage(self, tokens):
        """Give lists the pages for `tokens` [lists, 2]. Return the status and the number of changed lists."""
        wanted = [
            [-(-n // of) for n, of in zip(pair, self.page_tokens, strict=True)] for pair in tokens.tolist()
        ]
        fits = [
            min(pair) >= 0 and sum(want) <= self.columns
            for pair, want in zip(tokens.tolist(), wanted, strict=True)
        ]
        pairs = [pair for pair, fit in zip(zip(self.lists, wanted, strict=True), fits, strict=True) if fit]
        changes = [
            want - len(held) for lists, wants in pairs for held, want in zip(lists, wants, strict=True)
        ]
        asked, there = sum(max(n, 0) for n in changes), len(self.free) + sum(max(-n, 0) for n in changes)
        done = all(fits) and asked <= there
        if done:
            for (left, right), (lefts, rights) in pairs:
                self.free += left[lefts:] + right[rights:][::-1]
                del left[lefts:], right[rights:]
            for (left, right), (lefts, rights) in pairs:
                left += [self.free.popleft() for _ in range(lefts - len(left))]
                right += [self.free.popleft() for _ in range(rights - len(right))][::-1]
        return (done, asked, there, fits.count(False)), sum(n != 0 for n in changes)

    def table(self):
        """Return the table of pages: int32 [lists, columns]."""
        table = numpy.full((len(self.lists), self.columns), -1, numpy.int32)
        for row, (left, right) in zip(table, self.lists, strict=True):
            row[: len(left)] = left
            row[self.columns - len(right) :] = right[::-1]
        return table


def compare(pool, model):
    """Check that every page is where the model has it, and that none is in two places."""
    table, counts = (
        numpy.asarray(pool.table).reshape(-1, pool.columns),
        numpy.asarray(pool.counts).reshape(-1, 2),
    )
    numpy.testing.assert_array_equal(table, model.table())
    assert counts.tolist() == [[len(left), len(right)] for left, right in model.lists]
    free, (begin, count) = numpy.asarray(pool._tensors["free"]), numpy.asarray(pool._tensors["span"]).tolist()
    assert free[(begin + numpy.arange(count)) % pool.pages].tolist() == list(model.free)
    held = numpy.concatenate([table[table >= 0], numpy.array(model.free, numpy.int32)])
    assert len(held) == pool.pages and len(numpy.unique(held)) == pool.pages
