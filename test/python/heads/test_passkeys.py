# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts with passkeys: their parts, and the same text for a seed."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.heads import Passkeys  # noqa: E402

OPTIONS = {
    "alphabet": range(100, 126),
    "haystack": range(1000, 3000),
    "openings": [[1, 2], [3]],
    "questions": [[4, 5, 6], [7]],
    "separator": [9],
    "begin": [0],
    "lengths": (60, 200),
    "intervals": 8,
    "passkey": 5,
    "batch": 3,
}


def text_of(tokens):
    """Return [begin, haystack and needles..., questions and answers], as a reader finds them in the tokens."""
    tokens = tokens.tolist()
    assert tokens[0] == 0
    hay = [t for t in tokens if t >= 1000]
    assert hay == list(range(1000, 1000 + len(hay)))  # in order, without gaps
    rest = [t for t in tokens if t < 1000]
    assert rest[:3] == [0, 1, 2] and rest[8:10] == [9, 3] and rest[15:19] == [9, 4, 5, 6]
    first, second = rest[3:8], rest[10:15]
    assert rest[19:] == [*first, 9, 7, *second, 9]
    assert all(100 <= t < 126 for t in first + second)
    return tokens.index(1), tokens.index(3), len(tokens)


def test_what_is_where():
    data, depths, lengths = Passkeys(**OPTIONS, depth=(0.1, 0.9)), [], set()
    for step in range(40):
        tokens, counted, answers = data(step)
        assert tokens.dtype == torch.int64 and counted.dtype == answers.dtype == torch.bool
        lengths.add(tokens.shape[1])
        for text, of_end, of_keys in zip(tokens, counted, answers, strict=True):
            a, b, length = text_of(text)
            depths.append((a - 1) / (length - 32))
            assert of_end.tolist() == [False] * (length - 16) + [True] * 16
            assert of_keys.sum() == 10 and (text[of_keys] >= 100).all() and (of_end | ~of_keys).all()
    assert lengths == {60, 80, 100, 120, 140, 160, 180, 200}
    assert 0.06 <= min(depths) < 0.2 and 0.7 < max(depths) <= 0.9


def test_the_same_for_a_seed():
    data, again, other = Passkeys(**OPTIONS), Passkeys(**OPTIONS), Passkeys(**OPTIONS, seed=1)
    for a, b in zip(data(7), again(7), strict=True):
        assert torch.equal(a, b)
    assert not all(torch.equal(data(i).tokens[:, :60], data(i + 1).tokens[:, :60]) for i in range(3))
    assert not torch.equal(data(7).tokens[0], data(7).tokens[1])
    assert data(7).tokens.shape != other(7).tokens.shape or not torch.equal(data(7).tokens, other(7).tokens)


def test_distinct_tokens_in_any_order():
    data = Passkeys(**OPTIONS | {"lengths": (60, 60)}, distinct=True, shuffle=True)
    orders = set()
    for step in range(10):
        tokens, _, answers = data(step)
        for text, of_keys in zip(tokens.tolist(), answers.tolist(), strict=True):
            keys = [t for t, of_key in zip(text, of_keys, strict=True) if of_key]
            assert len(set(keys)) == 10
            orders.add((text.index(1) < text.index(3), text.index(4) < text.index(7)))
    assert len(orders) == 4


def test_a_haystack_may_be_a_function():
    data = Passkeys(**OPTIONS | {"haystack": lambda n, random: 1000 + torch.arange(n)})
    assert torch.equal(data(3).tokens, Passkeys(**OPTIONS)(3).tokens)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"alphabet": []}, "alphabet: expected a list of 1 tokens or more"),
        ({"alphabet": [0.5]}, "alphabet: expected a list"),
        ({"questions": [[1]]}, "questions: expected one for each of 2 openings"),
        ({"openings": [], "questions": None}, "questions: expected"),
        ({"lengths": (32, 200)}, r"lengths: expected \(shortest, longest\), from 33 tokens on"),
        ({"haystack": [1] * 167}, "haystack: expected 168 tokens or more, got 167"),
        ({"depth": (0.5, 1.5)}, "depth: expected shares"),
        ({"alphabet": [1] * 20, "distinct": True}, "alphabet: expected 10 different tokens"),
        ({"batch": 0}, "batch: expected a whole number from 1 on"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(attn.SpecError, match=message):
        Passkeys(**OPTIONS | options)
