# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How tokens are drawn: the parameters of a request, and draws for rows of a step that each have their own.

A draw is a race: each token waits for a random time, on average one over its weight, and the first token wins. The
times come from a hash of the request's seed, the number of the new token and the token's id. So a draw depends on the row's
logits and on nothing else in the step, and a token that was drawn once is drawn again. If rounding changes the logits a
little, few draws change: only those that the change of probability decides.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import PlanError, expected

_WORD = 0xFFFFFFFF
_LONG = (1 << 64) - 1
_COLDEST = (
    1e-9  # Logits over smaller temperatures would be no numbers of 32 bits; the likeliest token wins as well.
)
_SPREAD = 0x45D9F3B  # Below 2^31: products with words stay below 2^63.


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a request are chosen: the likeliest ones, or drawn."""

    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self):
        check_sampling(self.temperature, self.top_k, self.top_p, self.min_p)
        if not isinstance(self.sample, bool):
            raise expected(PlanError, "do_sample", "True or False", self.sample)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= _LONG:
            nearest = min(max(self.seed, 0), _LONG) if type(self.seed) is int else None
            raise expected(
                PlanError, "seed", "a whole number from 0 to 2**64 - 1", self.seed, nearest=nearest
            )

    @property
    def sorts(self) -> bool:
        """Whether a draw has to put tokens into the order of their probabilities."""
        return self.sample and (self.top_k > 0 or self.top_p < 1)

    def numbers(self, index: int) -> tuple[int, int, int, int]:
        """Return the whole numbers of a draw of the new token `index`: whether it is drawn, top_k, and two words of
        randomness."""
        if not self.sample:
            return 0, 0, 0, 0
        key = _mixed(_mixed(self.seed) ^ index)
        return 1, min(self.top_k, _WORD), key >> 32, key & _WORD

    def weights(self) -> tuple[float, float, float]:
        """Return temperature, top_p (2 for all tokens, which no rounded sum reaches), and the logarithm of min_p."""
        least = math.log(self.min_p) if self.min_p > 0 else -math.inf
        return max(float(self.temperature), _COLDEST), float(self.top_p) if self.top_p < 1 else 2.0, least


def check_sampling(temperature: object, top_k: object, top_p: object, min_p: object = 0.0) -> None:
    """Raise a PlanError for parameters that leave no token, or no choice among tokens."""
    if not _real(temperature) or not 0 < temperature < math.inf:
        hint = "Without do_sample the likeliest token is chosen"
        raise expected(PlanError, "temperature", "more than 0", temperature, hint=hint)
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise expected(PlanError, "top_k", "0 (all tokens) or a number of tokens", top_k, nearest=0)
    if not _real(top_p) or not 0 < top_p <= 1:
        raise expected(PlanError, "top_p", "more than 0, at most 1", top_p, nearest=1.0)
    if not _real(min_p) or not 0 <= min_p <= 1:
        nearest = min(max(float(min_p), 0.0), 1.0) if _real(min_p) else 0.0
        raise expected(PlanError, "min_p", "0 (all tokens) to 1", min_p, nearest=nearest)


def _real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _mixed(number: int) -> int:
    """Return 64 bits, each of which depends on each bit of a 64-bit number (the finalizer of SplitMix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _LONG
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _LONG
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _LONG
    return number ^ (number >> 31)


def draw(logits: Tensor, numbers: Tensor, weights: Tensor, sorts: bool) -> Tensor:
    """Draw a token for each row: `logits [rows, vocabulary]`, `numbers i64[4, rows]` and `weights f64[3, rows]` as
    Sampling has them. Returns i64[rows]. Rows with top_k or top_p need `sorts`; other rows get the same tokens with and
    without it. Waits for nothing."""
    _, top_k, *key = numbers[:, :, None]
    temperature, top_p, min_p = weights.float()[:, :, None]
    scores = logits.float() / temperature
    if sorts:
        scores, tokens = scores.sort(dim=1, descending=True)
        last = torch.where(top_k > 0, top_k, scores.shape[1]).clamp(max=scores.shape[1]) - 1
        scores = scores.masked_fill(scores < scores.gather(1, last), -torch.inf)
        shares = scores.softmax(1)
        before = shares.cumsum(1) - shares  # So the likeliest token stays, whatever top_p is.
        scores = scores.masked_fill(before >= top_p, -torch.inf)
    else:
        tokens = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    scores = scores.masked_fill(scores < scores.amax(1, keepdim=True) + min_p, -torch.inf)
    return tokens.gather(1, (scores - waits(tokens, *key).log()).argmax(1, keepdim=True))[:, 0]


def waits(tokens: Tensor, key: Tensor, other: Tensor) -> Tensor:
    """Return random times with a mean of 1, exponentially distributed, f32 like `tokens i64[rows, n]`. `key` and `other
    i64[rows, 1]` are words of randomness for each row."""
    word = _spread(tokens ^ key)
    word = _spread(word ^ other)
    word = _spread(word)
    word = (word ^ (word >> 16)) & 0x7FFFFFFF
    # Small times decide the race, so they have all bits of a float.
    part = ((word.float() + 0.5) * 2.0**-31).clamp(max=1 - 2.0**-24)
    return -torch.log1p(-part)


def _spread(word: Tensor) -> Tensor:
    """Return words of 32 bits whose high bits depend on all bits of `word`."""
    return ((word >> 16) ^ word) * _SPREAD & _WORD
