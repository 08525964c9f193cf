# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which requests have rows in the next step.

Prompts, decoding and requests that were sent back are one thing: tokens that the cache does not hold yet. Those that decode
come first, a row each; what is left of a step's rows goes to prompts, the oldest first, in chunks. A request is taken in where
there are pages for all of its tokens and for those that others have still to read; what is generated takes pages as it comes,
and where they run out, the youngest request gives its own back and is read again later. So the oldest always goes on.

The host decides a step before it has read what the one before it chose: it counts that token, whatever it is. Where it turns out
that it ended a request, the row that was in vain is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import OutOfPages
from .requests import Request, pages_of


@dataclass(frozen=True)
class Share:
    """Of a request in a step."""

    request: Request
    rows: int
    chooses: bool
    """Whether nothing of it is left to read, so that its next token is chosen."""


class Scheduler:
    """Over an attn.PagedCache, in which others may have sequences, too."""

    def __init__(self, pages: Any, sequences: int, rows: int):
        self.pages, self.rows = pages, rows
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """In the order in which they came."""
        self.sent_back = 0
        """Requests that gave their pages back before they had ended, so far."""
        self._slots = list(range(sequences))

    def schedule(self) -> list[Share]:
        """The next step, for whose rows there are pages; empty where nothing can be done before results come. OutOfPages where
        what others have leaves no room for a single request."""
        self._admit()
        while True:
            step = self._shares()
            missing = sum(self._missing(share.request, share.rows) for share in step)
            if missing <= self.pages.free_pages():
                return step
            if len(self.running) == 1:
                free = self.pages.free_pages()
                raise OutOfPages(
                    f"pages: request {self.running[0].request_id!r} needs {missing} more, {free} are free, and no other request "
                    "has any: the pool's other pages are somebody else's"
                )
            self.send_back(self.running[-1])
            self.sent_back += 1

    def _admit(self) -> None:
        reserved = sum(self._missing(request, request.length - request.read) for request in self.running)
        while self.waiting and self._slots and not self.waiting[0].pending:
            request = self.waiting[0]
            # One more: what it generates first may begin a page.
            reserved += pages_of(request.length + 1, self.pages.page_size)
            if self.running and reserved > self.pages.free_pages():
                return
            self.waiting.popleft()
            request.node, request.slot = self.pages.add(), self._slots.pop(0)
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
        """The step will run. Those that get their last token in it give back their pages: whoever takes them writes them in a later
        step. Gives the requests whose tokens it chooses, in the order of its shares."""
        chosen = []
        for share in step:
            request = share.request
            request.read += share.rows
            if share.chooses:
                request.pending += 1
                chosen.append(request)
                if request.chosen >= request.most:
                    self.leave(request)
        return chosen

    def send_back(self, request: Request) -> None:
        """Before all that wait; what is known of its answer is read again as a part of its prompt."""
        self.leave(request)
        request.read = 0
        self.waiting.appendleft(request)

    def leave(self, request: Request) -> None:
        """Gives back what it has."""
        if request.node is not None:
            self.running.remove(request)
            self.pages.prune(request.node)
            self._slots.append(request.slot)
            request.node, request.slot = None, -1
        elif request in self.waiting:
            self.waiting.remove(request)
