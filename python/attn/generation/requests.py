# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that an engine serves, and their outputs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy
import torch
from torch import Tensor

from ..errors import OutOfPages, PlanError, TensorError, expected
from .answer_text import AnswerText
from .metrics import RequestTimes
from .sampling import Sampling
from .step_table import BANNED


@dataclass(frozen=True)
class RequestOutput:
    """The output of a request, after a step that gave it a token, or that ended it."""

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    """The tokens generated so far, including those that ended it."""
    finish_reason: str | None = None
    """"stop" after one of its eos_token_id, stop_token_ids or stop strings, "length" after max_new_tokens; None if more
    tokens follow."""
    cached_tokens: int = 0
    """Tokens of the prompt that were not read, as their pages were kept from earlier requests."""
    new_token_ids: list[int] = field(default_factory=list)
    """The last of `token_ids`, since the request's last output."""
    text: str | None = None
    """The text generated so far, without special tokens and what ended it; None if the engine has no tokenizer.
    Characters that are not whole yet, and an end that may begin a stop string, are left out until they are decided."""
    new_text: str | None = None
    """The end of `text`, since the request's last output. All of them together are the text."""
    stop_reason: str | int | None = None
    """The stop string, or the one of stop_token_ids, that ended it."""
    logprobs: list[dict[int, float]] | None = None
    """For each generated token, natural logarithms of probabilities by token: of the generated token, and of the
    likeliest ones, in their order. They are the model's own: before temperature, top_k, top_p, min_p and
    min_new_tokens. None if the request asks for none."""
    times: RequestTimes | None = None

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
    """All tokens that end it."""
    stop_tokens: frozenset[int] = frozenset()
    """Those that its output names."""
    least: int = 0
    """New tokens before one that ends it."""
    sampling: Sampling = Sampling()
    logprobs: int | None = None
    """The number of likeliest tokens whose log-probabilities it asks for."""
    text: AnswerText | None = None
    include_stop: bool = False
    """Whether the text has what ended it."""
    arrival: float = field(default_factory=time.monotonic)
    admitted: float | None = None
    first_token: float | None = None
    finished: float | None = None
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
    stop_reason: str | int | None = None
    known: list[dict[int, float]] = field(default_factory=list)
    """Log-probabilities of the known tokens of the answer."""
    told: int = 0
    """New tokens that outputs have had, and characters of their text."""
    told_text: int = 0

    @property
    def length(self) -> int:
        return len(self.tokens) + self.pending

    @property
    def chosen(self) -> int:
        """The number of new tokens, including those in progress."""
        return self.length - self.prompt

    def accept(self, token: int, logprobs: dict[int, float] | None = None) -> None:
        """Take a token that a step chose, and find out whether it ends the request. If its text cannot be decoded,
        nothing has changed."""
        count, ends, stopped = len(self.tokens) - self.prompt + 1, token in self.ends, False
        if self.text is not None and (not ends or self.include_stop):
            stopped = self.text.add(token, stops=not ends and count >= self.least)
        self.pending -= 1
        self.tokens.append(token)
        if self.logprobs is not None:
            self.known.append(logprobs)
        now = time.monotonic()
        if self.first_token is None:
            self.first_token = now
        if ends:
            self.finish_reason, self.stop_reason = "stop", token if token in self.stop_tokens else None
        elif stopped:
            self.finish_reason, self.stop_reason = "stop", self.text.stop
        elif count >= self.most:
            self.finish_reason = "length"
        if self.finish_reason is not None:
            self.finished = now
            if self.text is not None:
                self.text.finish()

    def output(self) -> RequestOutput:
        """Return its output. The next one has the new tokens and text from here on."""
        at, told, told_text = self.prompt, self.told, self.told_text
        prompt, answer = self.tokens[:at], self.tokens[at:]
        written = None if self.text is None else self.text.written(self.finish_reason is not None)
        self.told, self.told_text = len(answer), len(written or "")
        return RequestOutput(
            request_id=self.request_id,
            prompt_token_ids=prompt,
            token_ids=answer,
            finish_reason=self.finish_reason,
            cached_tokens=self.cached or 0,
            new_token_ids=answer[told:],
            text=written,
            new_text=None if written is None else written[told_text:],
            stop_reason=self.stop_reason,
            logprobs=None if self.logprobs is None else self.known[:],
            times=RequestTimes(self.arrival, self.admitted, self.first_token, self.finished),
        )


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


def check_least(least: object, most: int, ends: frozenset[int]) -> None:
    """Raise a PlanError if `min_new_tokens` exceeds the most new tokens, or if more tokens end the request than a step
    can forbid."""
    if isinstance(least, bool) or not isinstance(least, int) or not 0 <= least <= most:
        nearest = min(max(least, 0), most) if type(least) is int else 0
        legal = f"0 to {most}, the most new tokens"
        raise expected(PlanError, "min_new_tokens", legal, least, nearest=nearest)
    if least and len(ends) > BANNED:
        legal = f"at most {BANNED} tokens that end a request which has min_new_tokens"
        raise expected(PlanError, "eos_token_id and stop_token_ids", legal, len(ends), nearest=BANNED)


def check_logprobs(given: object, most: int) -> None:
    """Raise a PlanError if a request asks for log-probabilities of more tokens than the engine has."""
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        nearest = min(max(given, 0), most) if type(given) is int else None
        legal = f"None, or 0 to {most} likeliest tokens, as the engine was made for (max_logprobs={most})"
        raise expected(PlanError, "logprobs", legal, given, nearest=nearest)


def check_engine(rows: int, sequences: int) -> None:
    """Raise a PlanError if steps could not progress."""
    if rows < sequences:
        raise expected(
            PlanError, "rows", f"{sequences} or more, a row for each sequence", rows, nearest=sequences
        )


def pages_of(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
