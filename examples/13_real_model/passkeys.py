# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that hide numbers, which SmolLM2 finds again: passkeys in plain English, for attn.heads.

Each number follows its opening ("The secret number of Alice is 48213.") somewhere in Python's language reference, and is
asked for at the end. The tokenizer makes a token of each digit, so a passkey is five tokens, and a guess is right once in
ten times. Of 512 tokens with four numbers the model without streaming predicts all digits of eight texts. Other forms that
were tried are worse: an answer that does not repeat "The secret number of … is" misses 31 % of first digits, and passkeys of
five nouns miss 9 to 21 % of their tokens.
"""

from __future__ import annotations

import smollm2
import torch
from attn.heads import Passkeys

NAMES = ("Alice", "Robert", "Maria", "Thomas", "Laura", "Peter", "Helen", "George")
DIGITS = 5


def opening(name):
    return f"\nThe secret number of {name} is "


def question(name):
    return f"\nQuestion: What is the secret number of {name}? Answer: The secret number of {name} is "


def passkeys(tokens, length, *, training, names=4, depth=(0.0, 0.75), seed=0):
    """Return the `Passkeys` of the model's tokenizer: texts of `length` tokens that begin anywhere in the reference.
    Texts for `training` are of other sections than those of `smollm2.prose()`, which are for evaluation."""

    def ids(text):
        return tokens(text).input_ids

    hay = torch.tensor(ids(smollm2.prose(*smollm2.other_sections()) if training else smollm2.prose()))

    def haystack(count, random):
        first = int(torch.randint(len(hay) - count + 1, (), generator=random))
        return hay[first : first + count]

    return Passkeys(
        alphabet=[ids(str(digit))[0] for digit in range(10)],
        haystack=haystack,
        openings=[ids(opening(name)) for name in NAMES[:names]],
        questions=[ids(question(name)) for name in NAMES[:names]],
        separator=ids(".\n"),
        begin=[tokens.bos_token_id],
        lengths=(length, length),
        intervals=1,
        passkey=DIGITS,
        depth=depth,
        shuffle=True,
        seed=seed,
    )


def first_question(texts):
    """Return the prompt up to the first answer, [1, tokens], and the answer's tokens."""
    at = int(texts.answers[0].nonzero()[0])
    return texts.tokens[:1, :at], texts.tokens[0, at : at + DIGITS]
