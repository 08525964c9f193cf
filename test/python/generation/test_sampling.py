# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws for rows with parameters of their own: tokens are as frequent as they are likely, over seeds and over tokens of
one seed; a row's draw depends on nothing but its logits and its parameters."""

import math
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
from attn.generation.sampling import Sampling, draw, waits  # noqa: E402

LOGITS = torch.tensor([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 2.5, 2.0]])
SEEDS = [(seed, 0) for seed in range(4000)]


def drawn(logits, keys=SEEDS, sorts=None, **options):
    """Return the tokens that a row of logits draws with each seed and number of the token."""
    each = [Sampling(True, seed=seed, **options) for seed, _ in keys]
    numbers = torch.tensor([one.numbers(index) for one, (_, index) in zip(each, keys, strict=True)]).T
    weights = torch.tensor([one.weights() for one in each], dtype=torch.float64).T
    sorts = each[0].sorts if sorts is None else sorts
    return draw(logits.expand(len(keys), -1), numbers, weights, sorts)


def frequency(logits, **options):
    return torch.bincount(drawn(logits, **options), minlength=len(logits)) / len(options.get("keys", SEEDS))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("keys", [SEEDS, [(3, index) for index in range(4000)]], ids=["seeds", "tokens"])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature, keys):
    found = frequency(LOGITS[0], keys=keys, temperature=temperature)
    torch.testing.assert_close(found, (LOGITS[0] / temperature).softmax(0), atol=0.03, rtol=0)


def test_many_tokens():
    """Chi-square over 300 tokens: neither seeds nor numbers of tokens leave a pattern."""
    logits = torch.randn(300, generator=torch.Generator().manual_seed(1))
    expected = logits.softmax(0) * 20_000
    for keys in ([(seed, 7) for seed in range(20_000)], [(7, index) for index in range(20_000)]):
        counts = torch.bincount(drawn(logits, keys), minlength=300)
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert abs(chi - 299) < 4 * math.sqrt(2 * 299)


def test_draws_are_independent():
    """Two seeds agree as often as chance has it, and so do neighbours of one seed."""
    logits = torch.randn(50, generator=torch.Generator().manual_seed(2))
    one, other = (drawn(logits, [(seed, index) for index in range(8000)]) for seed in (5, 6))
    chance = float((logits.softmax(0) ** 2).sum())
    for found in (one == other, one[1:] == one[:-1]):
        assert abs(float(found.float().mean()) - chance) < 4 * math.sqrt(chance / 8000)


def test_times_are_exponential():
    tokens = torch.arange(100_000)[None]
    found = waits(tokens, torch.tensor([[12]]), torch.tensor([[3_000_000_000]]))[0]
    assert (found > 0).all() and found.isfinite().all()
    for after in (0.01, 0.1, 1.0, 3.0):
        share = float((found > after).float().mean())
        assert abs(share - math.exp(-after)) < 0.006


def test_top_k_leaves_the_largest():
    found = frequency(LOGITS[0], top_k=2)
    assert found[0] == found[3] == 0
    torch.testing.assert_close(found[1:3], LOGITS[0, 1:3].softmax(0), atol=0.03, rtol=0)
    assert set(drawn(LOGITS[0], top_k=1).tolist()) == {1}
    assert (frequency(LOGITS[0], top_k=9) > 0).all()


def test_top_p_leaves_the_likeliest_that_reach_it():
    """Probabilities are 0.46, 0.28, 0.17 and so on; a token is kept if those before it sum to less than top_p."""
    shares = LOGITS[1].softmax(0)
    kept = frequency(LOGITS[1], top_p=float(shares[0]) + 0.01)
    assert (kept > 0).tolist() == [True, False, True, False]
    torch.testing.assert_close(kept[0], shares[0] / (shares[0] + shares[2]), atol=0.03, rtol=0)
    assert set(drawn(LOGITS[1], top_p=1e-6).tolist()) == {0}


def test_extremes():
    """Tiny temperatures leave the likeliest token, huge ones every token, and so does a top_k beyond the vocabulary."""
    for temperature in (1e-300, 1e-9, 1e-3):
        assert set(drawn(LOGITS[0] * 30, temperature=temperature).tolist()) == {1}
    found = frequency(LOGITS[0], temperature=1e300)
    torch.testing.assert_close(found, torch.full((4,), 0.25), atol=0.03, rtol=0)
    assert torch.equal(drawn(LOGITS[0], top_k=10**30), drawn(LOGITS[0]))


def test_min_p_leaves_the_likely():
    """Tokens have 1, 0.61, 0.37 and 0.05 of the largest probability."""
    assert (frequency(LOGITS[1], min_p=0.3) > 0).tolist() == [True, False, True, True]
    assert (frequency(LOGITS[1], min_p=0.5) > 0).tolist() == [True, False, True, False]
    assert set(drawn(LOGITS[1], min_p=1.0).tolist()) == {0}


def test_a_row_draws_the_same_beside_others():
    """With and without an order of tokens, and whatever the other rows are."""
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(3))
    options = [
        Sampling(True, seed=1),
        Sampling(True, temperature=2.5, seed=2),
        Sampling(True, min_p=0.2, seed=3),
    ]
    limited = Sampling(True, top_k=20, top_p=0.7, seed=4)

    def rows(given, logits, sorts):
        numbers = torch.tensor([one.numbers(index) for index, one in enumerate(given)]).T
        weights = torch.tensor([one.weights() for one in given], dtype=torch.float64).T
        return draw(logits, numbers, weights, sorts).tolist()

    own = rows(options * 21 + options[:1], logits, False)
    assert rows(options * 21 + options[:1], logits, True) == own and len(set(own)) > 40
    mixed = [limited if index % 2 else one for index, one in enumerate(options * 21 + options[:1])]
    assert rows(mixed, logits, True)[::2] == own[::2]
    assert [rows(mixed[:9], logits[:9], True)[8]] == own[8:9]


@pytest.mark.parametrize(
    "options,told",
    [
        ({"temperature": 0.0}, "temperature: expected more than 0, got 0.0. Without do_sample"),
        ({"temperature": float("nan")}, "temperature: expected more than 0, got nan"),
        ({"temperature": "1"}, "temperature: expected more than 0, got '1'"),
        ({"top_k": -1}, "top_k: expected 0 .* got -1; nearest legal: 0"),
        ({"top_k": 2.0}, "top_k: expected 0"),
        ({"top_p": 1.5}, "top_p: expected more than 0, at most 1, got 1.5; nearest legal: 1.0"),
        ({"min_p": 1.5}, "min_p: expected 0 .* to 1, got 1.5; nearest legal: 1.0"),
        ({"min_p": True}, "min_p: expected 0 .* to 1, got True"),
        ({"seed": -3}, r"seed: expected a whole number from 0 to 2\*\*64 - 1, got -3; nearest legal: 0"),
        ({"seed": 0.5}, "seed: expected a whole number"),
        ({"sample": "yes"}, "do_sample: expected True or False, got 'yes'"),
    ],
)
def test_choices_that_mean_nothing(options, told):
    with pytest.raises(attn.PlanError, match=told):
        Sampling(**options)
