# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that an engine serves, and their outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..errors import OutOfPages, PlanError, TensorError, expected


@dataclass(frozen=True)
class RequestOutput:
    """The output of a request, after a step that gave it a token, or that ended it."""

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    """The tokens generated so far, including the one that ended it."""
    finish_reason: str | None = None
    """"stop" after one of its eos_token_id, "length" after max_new_tokens; None if more tokens follow."""
    cached_tokens: int = 0
    """Tokens of the prompt that were not read, as their pages were kept from earlier requests."""

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(eq=False)
class Request:
    """A request in the scheduler. A token that the device has chosen is `pending` until the host has read it; it
    already is the input of the next step."""

    request_id: str
    tokens: list[int]
    """The prompt, and the known tokens of the answer."""
    prompt: int
    """The number of prompt tokens."""
    most: int
    """The most new tokens."""
    ends: frozenset[int]
    node: int | None = None
    """Its node in the cache; None while it waits."""
    slot: int = -1
    """The slot of its last token on the device."""
    read: int = 0
    """Tokens in the cache, including those of steps in progress."""
    pending: int = 0
    cached: int | None = None
    """Tokens of the prompt that it found in kept pages at its first admission."""
    finish_reason: str | None = None

    @property
    def length(self) -> int:
        return len(self.tokens) + self.pending

    @property
    def chosen(self) -> int:
        """The number of new tokens, including those in progress."""
        return self.length - self.prompt

    def output(self) -> RequestOutput:
        at = self.prompt
        tokens = self.tokens[:at], self.tokens[at:]
        return RequestOutput(self.request_id, *tokens, self.finish_reason, self.cached or 0)


def prompt_ids(given: object, vocabulary: int) -> list[int]:
    """Return the token ids of a prompt: a list, or an integer tensor [tokens] or [1, tokens]. TensorError."""
    if isinstance(given, (Tensor, numpy.ndarray)):
        if isinstance(given, Tensor) and given.dtype not in (torch.int64, torch.int32):
            raise expected(TensorError, "input_ids", "integers", given.dtype)
        if given.ndim == 2 and given.shape[0] == 1:
            given = given[0]
        if given.ndim != 1:
            raise expected(TensorError, "input_ids", "the tokens of one prompt", list(given.shape))
        given = given.tolist()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise expected(TensorError, "input_ids", "token ids, in a list or a tensor", given)
    tokens = list(given)
    if not tokens:
        raise expected(TensorError, "input_ids", "one token or more", tokens)
    for place, token in enumerate(tokens):
        if (
            isinstance(token, bool)
            or not isinstance(token, (int, numpy.integer))
            or not 0 <= token < vocabulary
        ):
            raise expected(TensorError, f"input_ids[{place}]", f"a token, 0 to {vocabulary - 1}", token)
    return [int(token) for token in tokens]


def check_fits(prompt: int, new: object, tokens: int, pages: int, page_size: int) -> None:
    """Raise a PlanError if a request, alone, exceeds the limit of a sequence; OutOfPages if it exceeds the pool. The
    last token's keys are not written."""
    held = min(tokens, pages * page_size)
    if prompt > tokens:
        raise expected(PlanError, "input_ids", f"at most {tokens} tokens, as the engine was made for", prompt)
    if prompt > held:
        raise expected(OutOfPages, "input_ids", f"at most {held} tokens, in a pool of {pages} pages", prompt)
    most = held - prompt + 1
    if isinstance(new, bool) or not isinstance(new, int) or new < 1 or prompt + new - 1 > tokens:
        nearest = min(max(new, 1), most) if isinstance(new, int) else most
        legal = f"1 to {most} after {prompt} tokens, as the engine was made for {tokens}"
        raise expected(PlanError, "max_new_tokens", legal, new, nearest=nearest)
    if new > most:
        legal = f"1 to {most} after {prompt} tokens, in a pool of {pages} pages of {page_size}"
        raise expected(OutOfPages, "max_new_tokens", legal, new, nearest=most)


def check_engine(rows: int, sequences: int) -> None:
    """Raise a PlanError if steps could not progress."""
    if rows < sequences:
        raise expected(
            PlanError, "rows", f"{sequences} or more, a row for each sequence", rows, nearest=sequences
        )


def pages_of(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
