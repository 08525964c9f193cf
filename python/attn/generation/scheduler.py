# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses the requests that have rows in the next step.

Prompts, decoding and requests that were sent back are alike: tokens that the cache does not hold yet. Requests that
decode come first, with a row each; the other rows of a step go to prompts, the oldest first, in chunks. A request is
admitted when there are pages for all of its tokens and for those that others have still to read. Generated tokens take
pages as they come. If pages run out, kept prefixes are freed first. Then the youngest request frees its own and is read
again later, so the oldest always progresses.

The host decides a step before it has read the tokens of the step before, which it counts. If such a token ended a
request, the result of its unneeded row is dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import OutOfPages
from .prefixes import Prefixes
from .requests import Request, pages_of


@dataclass(frozen=True)
class Share:
    """The share of a request in a step."""

    request: Request
    rows: int
    chooses: bool
    """Whether the step reads the rest of it, so that its next token is chosen."""


class Scheduler:
    """Schedules requests over an attn.PagedCache, which may hold other sequences, too."""

    def __init__(self, pages: Any, sequences: int, rows: int, prefixes: Prefixes | None = None):
        self.pages, self.rows, self.prefixes = pages, rows, prefixes
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """In the order of admission."""
        self.sent_back = 0
        """The number of times that a request has freed its pages before it ended."""
        self.prompt_tokens = self.cached_tokens = 0
        """Tokens of the prompts of admitted requests, and those of them that were found in kept pages."""
        self._slots = list(range(sequences))

    def schedule(self) -> list[Share]:
        """Return the next step, for whose rows there are pages; [] if nothing can be done before results come.
        OutOfPages if other sequences leave no pages for a single request."""
        self._admit()
        while True:
            step = self._shares()
            missing = sum(self._missing(share.request, share.rows) for share in step)
            if self._room(missing):
                return step
            if len(self.running) == 1:
                free = self.pages.free_pages()
                raise OutOfPages(
                    f"pages: request {self.running[0].request_id!r} needs {missing} more, {free} are free, and no other request "
                    "has any: the other pages of the pool belong to other sequences of the cache"
                )
            self.send_back(self.running[-1])
            self.sent_back += 1

    def _room(self, pages: int, but: int | None = None) -> bool:
        """Whether so many pages are free, after kept prefixes other than the node `but` were freed."""
        if pages > self.pages.free_pages() and self.prefixes is not None:
            self.prefixes.free(pages, but)
        return pages <= self.pages.free_pages()

    def _admit(self) -> None:
        reserved = sum(self._missing(request, request.length - request.read) for request in self.running)
        while self.waiting and self._slots and not self.waiting[0].pending:
            request, kept, count = self.waiting[0], None, 0
            if self.prefixes is not None:  # Its last token is read, whatever is kept.
                kept, count = self.prefixes.find(request.tokens, (request.length - 1) // self.pages.page_size)
            # One more: the first generated token may begin a page.
            reserved += pages_of(request.length + 1, self.pages.page_size) - count
            if not self._room(reserved, kept) and self.running:
                return
            self.waiting.popleft()
            request.node = self.pages.add() if kept is None else self.prefixes.share(kept, count)
            request.slot, request.read = self._slots.pop(0), count * self.pages.page_size
            if request.cached is None:
                request.cached, request.admitted = request.read, time.monotonic()
                self.prompt_tokens += request.prompt
                self.cached_tokens += request.cached
            self.running.append(request)

    def _shares(self) -> list[Share]:
        left, step = self.rows, []
        reading = [request for request in self.running if request.length - request.read > 1]
        for request in self.running:
            if request.length - request.read == 1:
                step.append(Share(request, 1, True))
                left -= 1
        for request in reading:
            missing = request.length - request.read
            if rows := min(missing, left):
                step.append(Share(request, rows, rows == missing))
                left -= rows
        return step

    def _missing(self, request: Request, rows: int) -> int:
        page = self.pages.page_size
        return pages_of(request.read + rows, page) - pages_of(request.read, page)

    def launched(self, step: Iterable[Share]) -> list[Request]:
        """Record that the step will run. Requests that get their last token in it free their pages: their next owner
        writes them in a later step. Returns the requests whose tokens it chooses, in the order of its shares."""
        chosen = []
        for share in step:
            request = share.request
            request.read += share.rows
            if share.chooses:
                request.pending += 1
                chosen.append(request)
                if request.chosen >= request.most:
                    self.end(request)
                elif request.chosen == 1 and self.prefixes is not None:
                    self.prefixes.keep(request.node, request.tokens)
        return chosen

    def end(self, request: Request) -> None:
        """Free the pages and the slot of a request that has ended, or keep its pages as a prefix of later ones."""
        if request.node is not None and self.prefixes is not None:
            self.running.remove(request)
            self.prefixes.adopt(request.node, request.tokens[: request.read])
            self._slots.append(request.slot)
            request.node, request.slot = None, -1
        else:
            self.leave(request)

    def send_back(self, request: Request) -> None:
        """Return a request to the front of the queue; the known tokens of its answer are read again as a part of its
        prompt."""
        self.leave(request)
        request.read = 0
        self.waiting.appendleft(request)

    def leave(self, request: Request) -> None:
        """Free the request's pages and slot."""
        if request.node is not None:
            self.running.remove(request)
            self.pages.prune(request.node)
            self._slots.append(request.slot)
            request.node, request.slot = None, -1
        elif request in self.waiting:
            self.waiting.remove(request)
