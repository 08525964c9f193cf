# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of a request, and counts of an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestTimes:
    """Times of a request in seconds of time.monotonic(); None if it is not there yet."""

    arrival: float
    """When it was added."""
    admitted: float | None = None
    """When a step first had room for it."""
    first_token: float | None = None
    """When the host read its first new token."""
    finished: float | None = None
    """When the host read the token that ended it."""


@dataclass(frozen=True)
class EngineMetrics:
    """The state of an engine, and counts since it was made. `Engine.metrics` returns it."""

    running: int
    """Requests with pages, or with tokens that the host has not read yet."""
    waiting: int
    """Requests without pages, those that were sent back included."""
    finished: int
    aborted: int
    sent_back: int
    """The number of times that a request has freed its pages before it ended."""
    steps: int
    """Steps that were launched."""
    rows: int
    """Tokens that went through the model: of prompts, of answers, and of requests that were read again."""
    prompt_tokens: int
    """Tokens of the prompts of all requests that a step had room for."""
    cached_tokens: int
    """Tokens of these prompts that were not read, as their pages were kept."""
    new_tokens: int
    """Tokens of answers that the host has read."""
    pages: int
    """Pages of the pool."""
    free_pages: int
    kept_pages: int
    """Different pages of tokens that later requests can share. They go first when pages run out."""
