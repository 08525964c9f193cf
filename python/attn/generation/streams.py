# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The outputs of one request as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .requests import RequestOutput


class Stream(Iterator[RequestOutput]):
    """An iterator over the outputs of a request; `Engine.stream` returns it. Each `next` runs the engine's steps, for
    all of its requests, until this one has new tokens. If the iterator is closed or dropped before the end, its request
    is aborted."""

    def __init__(self, engine: Any, request_id: str):
        self.engine, self.request_id = engine, request_id
        self._ended = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> RequestOutput:
        if self._ended:
            raise StopIteration
        output = self.engine._next_output(self.request_id)
        if output is None or output.finished:
            self._ended = True
            self.engine._streams.discard(self.request_id)
        if output is None:  # Someone has aborted it.
            raise StopIteration
        return output

    def close(self) -> None:
        """Abort the request if it has not ended."""
        if not self._ended:
            self._ended = True
            self.engine._drop(self.request_id)

    def __del__(self):
        if not getattr(self, "_ended", True):
            self.close()
