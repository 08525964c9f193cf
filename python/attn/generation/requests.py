# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that an engine serves, and what it says of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..errors import OutOfPages, PlanError, TensorError, expected


@dataclass(frozen=True)
class RequestOutput:
    """Of a request, after a step that gave it a token, or that ended it."""

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    """What was generated so far, the token that ended it included."""
    finish_reason: str | None = None
    """"stop" behind one of its eos_token_id, "length" behind max_new_tokens; None where more is to come."""

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(eq=False)
class Request:
    """As the scheduler sees it. A token that the device has chosen is `pending` until the host has read it: it is the input of
    the next step already."""

    request_id: str
    tokens: list[int]
    """The prompt, and what is known of the answer."""
    prompt: int
    """How many of them are the prompt."""
    most: int
    """New tokens, at most."""
    ends: frozenset[int]
    node: int | None = None
    """Of the cache; None while it waits."""
    slot: int = -1
    """Where the device keeps its last token."""
    read: int = 0
    """Tokens that the cache holds, those of steps under way counted."""
    pending: int = 0
    finish_reason: str | None = None

    @property
    def length(self) -> int:
        return len(self.tokens) + self.pending

    @property
    def chosen(self) -> int:
        """New tokens, those under way counted."""
        return self.length - self.prompt

    def output(self) -> RequestOutput:
        at = self.prompt
        return RequestOutput(self.request_id, self.tokens[:at], self.tokens[at:], self.finish_reason)


def prompt_ids(given: object, vocabulary: int) -> list[int]:
    """Token ids of a prompt: a list, or an integer tensor of one dimension, or two of which the first is 1."""
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
    """PlanError where a request, alone, exceeds what a sequence may have; OutOfPages where it exceeds the pool. The last token's
    keys are not written."""
    held = min(tokens, pages * page_size)
    if prompt > tokens:
        raise expected(PlanError, "input_ids", f"at most {tokens} tokens, as the engine was made for", prompt)
    if prompt > held:
        raise expected(OutOfPages, "input_ids", f"at most {held} tokens, in a pool of {pages} pages", prompt)
    most = held - prompt + 1
    if isinstance(new, bool) or not isinstance(new, int) or new < 1 or prompt + new - 1 > tokens:
        nearest = min(max(new, 1), most) if isinstance(new, int) else most
        legal = f"1 to {most} behind {prompt} tokens, with room for {tokens}"
        raise expected(PlanError, "max_new_tokens", legal, new, nearest=nearest)
    if new > most:
        legal = f"1 to {most} behind {prompt} tokens, in a pool of {pages} pages of {page_size}"
        raise expected(OutOfPages, "max_new_tokens", legal, new, nearest=most)


def check_engine(rows: int, sequences: int) -> None:
    """PlanError where steps could not go on."""
    if rows < sequences:
        raise expected(
            PlanError, "rows", f"{sequences} or more, a row for each sequence", rows, nearest=sequences
        )


def pages_of(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
