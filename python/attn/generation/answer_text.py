# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of an answer, token by token, and strings that end it.

A character may be spread over several tokens, and some tokenizers write the same token in another way at the beginning
of a text. So a new token is decoded behind the tokens before it, and its text is kept back until the character is
whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import PlanError, expected

_BROKEN = "\ufffd"  # Decoded bytes that are no whole character.
_CONTEXT = 6  # Tokens of the prompt that the first token is decoded behind.
_LONGEST = 8  # Tokens of a character that is not whole yet; more are no character.


class AnswerText:
    """The text of an answer. Special tokens have none."""

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], stops: Sequence[str] = (), include: bool = False
    ):
        self._tokenizer, self._stops, self._include = tokenizer, tuple(stops), include
        self._tokens = list(prompt[-_CONTEXT:])
        """Tokens that the next token is decoded behind."""
        self._known = len(self._tokens)
        """How many of these have their text already."""
        self._before = self._decode(self._tokens)
        """The text of the known ones."""
        self._said = ""
        self.stop: str | None = None
        """The string that ended the answer."""

    def _decode(self, tokens: Sequence[int]) -> str:
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return self._tokenizer.decode(list(tokens), **options)

    def add(self, token: int, stops: bool = True) -> bool:
        """Add a token. Returns whether a stop string is in the text now, which then ends before it, or with it. Without
        `stops` none is looked for. If decoding fails, nothing has changed."""
        tokens = [*self._tokens, token]
        decoded = self._decode(tokens)
        if decoded.endswith(_BROKEN) and len(tokens) - self._known < _LONGEST:
            self._tokens = tokens
            return False
        fresh = tokens[self._known :]
        before = self._decode(fresh)
        old = len(self._said)
        self._said += _behind(self._before, decoded)
        if before:
            self._tokens, self._known, self._before = fresh, len(fresh), before
        else:  # Special tokens alone: the next token needs text before it.
            self._tokens, self._known, self._before = tokens, len(tokens), decoded
        return stops and self._ends(old)

    def finish(self) -> None:
        """Add what was kept back of a character: no more tokens follow."""
        if self._known < len(self._tokens):
            self._said += _behind(self._before, self._decode(self._tokens))
            self._known = len(self._tokens)

    def _ends(self, old: int) -> bool:
        """Cut the text at the first stop string that ends behind the first `old` characters."""
        first = None
        for stop in self._stops:
            place = self._said.find(stop, max(0, old - len(stop) + 1))
            if place >= 0 and (first is None or place < first):
                first, self.stop = place, stop
        if first is not None:
            self._said = self._said[: first + (len(self.stop) if self._include else 0)]
        return first is not None

    def written(self, finished: bool) -> str:
        """Return the text. The end of an unfinished one is left out if it may begin a stop string."""
        if finished or not self._stops:
            return self._said
        most = max(map(len, self._stops)) - 1
        for length in range(min(most, len(self._said)), 0, -1):
            if any(stop.startswith(self._said[-length:]) for stop in self._stops):
                return self._said[:-length]
        return self._said


def _behind(before: str, decoded: str) -> str:
    """Return the text that follows `before`, whose last character may have been a broken one."""
    if decoded.startswith(before):
        return decoded[len(before) :]
    return decoded[len(os.path.commonprefix([before, decoded])) :]


def stop_strings(given: object, tokenizer: object) -> tuple[str, ...]:
    """Return the strings of `stop`: none, one, or several. PlanError, also for strings without a tokenizer."""
    if given is None:
        return ()
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(each, str) for each in found):
        raise expected(PlanError, "stop", "a string, or several", given)
    if not all(found):
        raise expected(PlanError, "stop", "strings of one character or more", given)
    if found and tokenizer is None:
        hint = "Give one to the engine: Engine(..., tokenizer=tokenizer); or end answers by stop_token_ids"
        raise expected(PlanError, "tokenizer", "a tokenizer, which stop strings need", None, hint=hint)
    return found


def check_tokenizer(tokenizer: object) -> None:
    """Raise a PlanError for what cannot decode tokens."""
    if tokenizer is not None and not callable(getattr(tokenizer, "decode", None)):
        raise expected(PlanError, "tokenizer", "a tokenizer of Transformers, or None", tokenizer)
