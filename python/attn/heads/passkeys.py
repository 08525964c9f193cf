# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that test retrieval: only a model that finds distant passkeys continues them. Lists of tokens, of any
tokenizer.

A haystack contains passkeys at random depths, each after its opening. At the end follow the questions, each with its
answer. (Source: arXiv 2410.10819, section 2.2.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ..errors import SpecError, expected


class Texts(NamedTuple):
    """A batch. `tokens` int64 [batch, length]; `counted` bool, the same shape: tokens of questions and answers, whose
    hidden states are compared; `answers` bool: tokens of the answers, which the token before each has to predict."""

    tokens: Tensor
    counted: Tensor
    answers: Tensor


class Passkeys:
    """Makes the `Texts` of a step, called with its number: equal ones for an equal seed, on every machine.

    alphabet   tokens from which passkeys are drawn
    haystack   tokens to hide them in, at least as many as the longest text has; or a function of a number of tokens and a
               torch.Generator that returns so many, int64
    openings   tokens before each passkey ("the second passkey is "). There are as many passkeys as openings
    questions  tokens before each answer; by default the openings again
    separator  tokens after a passkey and after an answer
    begin      tokens at the beginning of every text
    lengths    (shortest, longest) text in tokens; drawn for each step, `intervals` different ones
    passkey    tokens of a passkey
    depth      (first, last) of the haystack's tokens, as shares, between which passkeys lie
    batch      texts of a step
    distinct   no token is in the passkeys of a text twice
    shuffle    openings and questions come in a random order
    seed       of all draws

    Raises SpecError.
    """

    def __init__(
        self,
        *,
        alphabet: Sequence[int],
        haystack: Sequence[int] | Tensor | Callable[[int, torch.Generator], Tensor],
        openings: Sequence[Sequence[int]],
        questions: Sequence[Sequence[int]] | None = None,
        separator: Sequence[int] = (),
        begin: Sequence[int] = (),
        lengths: tuple[int, int] = (1000, 32000),
        intervals: int = 50,
        passkey: int = 32,
        depth: tuple[float, float] = (0.05, 0.95),
        batch: int = 1,
        distinct: bool = False,
        shuffle: bool = False,
        seed: int = 0,
    ):
        self.alphabet = _tokens("alphabet", alphabet)
        self.haystack = haystack if callable(haystack) else _tokens("haystack", haystack)
        self.openings = [_tokens(f"openings[{i}]", each) for i, each in enumerate(openings)]
        asked = openings if questions is None else questions
        self.questions = [_tokens(f"questions[{i}]", each) for i, each in enumerate(asked)]
        self.separator, self.begin = _tokens("separator", separator, 0), _tokens("begin", begin, 0)
        self.lengths, self.intervals, self.passkey, self.depth = tuple(lengths), intervals, passkey, depth
        self.batch, self.distinct, self.shuffle, self.seed = batch, distinct, shuffle, seed
        if not self.openings or len(self.openings) != len(self.questions):
            legal = f"one for each of {len(self.openings)} openings, and at least one"
            raise expected(SpecError, "questions", legal, len(self.questions))
        for name, number in (
            ("intervals", intervals),
            ("passkey", passkey),
            ("batch", batch),
            ("seed", seed),
        ):
            least = int(name != "seed")
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise expected(SpecError, name, f"a whole number from {least} on", number, nearest=least)
        if len(self.lengths) != 2 or not self._rest() < self.lengths[0] <= self.lengths[1]:
            legal = (
                f"(shortest, longest), from {self._rest() + 1} tokens on, which all but the haystack takes"
            )
            raise expected(SpecError, "lengths", legal, lengths)
        if not callable(haystack) and len(self.haystack) < self.lengths[1] - self._rest():
            legal = f"{self.lengths[1] - self._rest()} tokens or more"
            raise expected(SpecError, "haystack", legal, len(self.haystack))
        if len(depth) != 2 or not 0 <= depth[0] <= depth[1] <= 1:
            raise expected(SpecError, "depth", "shares (first, last) from 0 to 1", depth)
        if distinct and len(self.alphabet.unique()) < passkey * len(self.openings):
            legal = f"{passkey * len(self.openings)} different tokens or more, as no two may be equal"
            raise expected(SpecError, "alphabet", legal, len(self.alphabet.unique()))

    def __call__(self, step: int) -> Texts:
        """Return the texts of a step, from 0 on."""
        random = torch.Generator().manual_seed(_mixed(self.seed, step))
        low, high = self.lengths
        share = int(torch.randint(self.intervals, (), generator=random)) / max(self.intervals - 1, 1)
        length = high if self.intervals == 1 else low + round(share * (high - low))
        texts = [self._text(length, random) for _ in range(self.batch)]
        return Texts(*map(torch.stack, zip(*texts, strict=True)))

    def _rest(self) -> int:
        """Return the number of tokens of a text without its haystack."""
        both = sum(map(len, self.openings)) + sum(map(len, self.questions))
        return len(self.begin) + both + 2 * len(self.openings) * (self.passkey + len(self.separator))

    def _text(self, length: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        count, hay = len(self.openings), length - self._rest()
        text = self.haystack(hay, random) if callable(self.haystack) else self.haystack[:hay]
        first, last = (int(share * hay) for share in self.depth)
        at = torch.randint(first, last + 1, (count,), generator=random).sort().values.tolist()
        if self.distinct:
            pool = self.alphabet.unique()
            keys = pool[torch.randperm(len(pool), generator=random)[: count * self.passkey]]
        else:
            keys = self.alphabet[torch.randint(len(self.alphabet), (count * self.passkey,), generator=random)]
        keys = keys.view(count, self.passkey)
        hidden, asked = (
            torch.randperm(count, generator=random).tolist() if self.shuffle else list(range(count))
            for _ in range(2)
        )
        parts, behind = [self.begin], 0
        for i, place in zip(hidden, at, strict=True):
            parts += [text[behind:place], self.openings[i], keys[i], self.separator]
            behind = place
        parts.append(text[behind:])
        context = sum(map(len, parts))
        answers = []
        for i in asked:
            parts += [self.questions[i], keys[i], self.separator]
            sizes = len(self.questions[i]), self.passkey, len(self.separator)
            answers += [
                flag for size, flag in zip(sizes, (False, True, False), strict=True) for _ in range(size)
            ]
        tokens = torch.cat(parts)
        counted = torch.arange(length) >= context
        return tokens, counted, torch.cat([torch.zeros(context, dtype=torch.bool), torch.tensor(answers)])


def _mixed(seed: int, step: int) -> int:
    """Return 32 bits: PyTorch's generator takes no more of a seed."""
    return int(numpy.random.SeedSequence([seed, step]).generate_state(1)[0])


def _tokens(name: str, tokens: object, least: int = 1) -> Tensor:
    try:
        found = torch.as_tensor(list(tokens) if isinstance(tokens, range) else tokens)
    except (TypeError, ValueError, RuntimeError):
        raise expected(SpecError, name, "a list of tokens", tokens) from None
    if found.ndim != 1 or len(found) < least or (len(found) and found.is_floating_point()):
        raise expected(SpecError, name, f"a list of {least} tokens or more", tokens)
    return found.to(torch.int64)
