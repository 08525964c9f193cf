# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prompts that an engine has read and keeps, so that later requests with the same first tokens share their pages.

A kept sequence fills its pages, so sharing copies nothing. It is found by digests of its first page, its first two pages, and
so on, each of the tokens and the digest before it. Kept sequences are freed when requests need their pages, those that no
request shared for the longest time first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy

from ..errors import OutOfPages


class Prefixes:
    """Kept sequences of an attn.PagedCache."""

    def __init__(self, pages: Any):
        self.pages = pages
        self._kept: OrderedDict[int, list[bytes]] = OrderedDict()
        """The digests of each kept node, those shared last at the end."""
        self._nodes: dict[bytes, list[int]] = {}
        """The kept nodes that begin with the pages of a digest."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def kept_pages(self) -> int:
        """Different pages of tokens that are kept."""
        return len(self._nodes)

    def _digests(self, tokens: Sequence[int]) -> Iterator[bytes]:
        """Yield the digest of the first page of tokens, of the first two, …, as far as they fill pages."""
        size, digest = self.pages.page_size, b""
        for first in range(0, len(tokens) - size + 1, size):
            page = numpy.array(tokens[first : first + size], numpy.int64).tobytes()
            yield (digest := hashlib.blake2b(digest + page, digest_size=16).digest())

    def find(self, tokens: Sequence[int], most: int) -> tuple[int | None, int]:
        """Return the kept node that begins with the most of at most `most` pages of tokens, and their number; (None, 0) if
        none does."""
        node, count = None, 0
        for digest in islice(self._digests(tokens), most):
            if digest not in self._nodes:
                break
            node, count = self._nodes[digest][-1], count + 1
        return node, count

    def share(self, node: int, pages: int) -> int:
        """Return a new sequence of the first pages of a kept one."""
        self._kept.move_to_end(node)
        twin = self.pages.fork(node)
        self._cut(twin, pages * self.pages.page_size)
        return twin

    def keep(self, node: int, tokens: Sequence[int]) -> None:
        """Keep the pages that a sequence's first tokens fill; the sequence itself goes on. Does nothing where the rest of
        its last page, which is copied and freed at once, finds no room."""
        if digests := self._new(tokens):
            try:
                twin = self.pages.fork(node)
            except OutOfPages:
                return
            self._add(twin, digests)

    def adopt(self, node: int, tokens: Sequence[int]) -> None:
        """Keep a sequence that has ended, as far as its first tokens fill pages, and free the rest."""
        if digests := self._new(tokens):
            self._add(node, digests)
        else:
            self.pages.prune(node)

    def _new(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the digests of tokens; [] if they fill no page, or if these pages are kept already."""
        digests = list(self._digests(tokens))
        return [] if not digests or digests[-1] in self._nodes else digests

    def _add(self, node: int, digests: list[bytes]) -> None:
        """Keep a node, instead of those that it begins with."""
        self._cut(node, len(digests) * self.pages.page_size)
        for digest in digests[:-1]:
            for other in self._nodes.get(digest, [])[:]:
                if self._kept[other][-1] == digest:
                    self._drop(other)
        self._kept[node] = digests
        for digest in digests:
            self._nodes.setdefault(digest, []).append(node)

    def _cut(self, node: int, tokens: int) -> None:
        if more := self.pages.tokens(node) - tokens:
            self.pages.truncate(node, more)

    def free(self, pages: int, but: int | None = None) -> None:
        """Free kept sequences until so many pages of the pool are free, or only `but` is left. Pages that requests share
        stay theirs."""
        for node in list(self._kept):
            if self.pages.free_pages() >= pages:
                return
            if node != but:
                self._drop(node)

    def clear(self) -> None:
        """Free all kept sequences."""
        for node in list(self._kept):
            self._drop(node)

    def _drop(self, node: int) -> None:
        for digest in self._kept.pop(node):
            others = self._nodes[digest]
            others.remove(node)
            if not others:
                del self._nodes[digest]
        self.pages.prune(node)
