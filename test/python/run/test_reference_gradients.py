# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the reference path: against differences, and against PyTorch's own in float64."""

import functools

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import replicated  # noqa: E402
from gradient_tensors import dense, error, gradients, leaves, reference  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402

OPTIONS = [
    {},
    {"causal": True},
    {"causal": True, "window": 2, "sink": 1, "scale": 0.7},
    {"causal": True, "softcap": 1.5},
    {"causal": True, "kv_lengths": [5, 3]},
    {"score": lambda s, h, qi, ki: s * attn.math.exp(0.1 * (ki - qi)) + 0.01 * s * s},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_gradcheck(options):
    assert gradcheck(reference(**options), dense(), fast_mode=True)


def test_gradcheck_of_every_element():
    assert gradcheck(
        reference(causal=True), dense(batch=1, rows=1, tokens=2, heads=1, kv_heads=1, value_dim=8)
    )


def test_gradcheck_of_sinks_and_tables():
    sinks, slopes, bias = leaves((4,), (4,), (5, 5))

    def function(q, k, v, sinks, slopes, bias):
        return attn.attend(
            q,
            k,
            v,
            causal=True,
            sink_logits=sinks,
            score=lambda s, h, qi, ki, slopes, bias: s + slopes[h] * (ki - qi) + bias[qi, ki],
            tensors={"slopes": slopes, "bias": bias},
            reference=True,
            return_lse=True,
        )

    assert gradcheck(function, (*dense(), sinks, slopes, bias), fast_mode=True)


def test_gradcheck_of_heads_in_front():
    q, k, v = (tensor.detach().transpose(1, 2).contiguous().requires_grad_() for tensor in dense())
    assert gradcheck(reference(causal=True, layout="bhsd"), (q, k, v), fast_mode=True)


def test_gradcheck_of_packed_sequences():
    options = dict(causal=True, cu_seqlens=[0, 2, 2, 5], cu_seqlens_k=[0, 4, 5, 8])
    assert gradcheck(reference(**options), leaves((5, 2, 8), (8, 1, 8), (8, 1, 8)), fast_mode=True)


def test_of_replicated_attention():
    """Score functions, sinks and tables, against PyTorch in float64."""
    q, k, v = leaves((9, 4, 16), (9, 2, 16), (9, 2, 24))
    sinks, slopes = leaves((4,), (4,), seed=5)
    at = torch.arange(9)

    def ours(q, k, v, sinks, slopes):
        score = lambda s, h, qi, ki, slopes: attn.math.tanh(s) * 3 + slopes[h] * (ki - qi)  # noqa: E731
        return attn.attend(
            q,
            k,
            v,
            causal=True,
            cu_seqlens=[0, 9],
            sink_logits=sinks,
            score=score,
            tensors={"slopes": slopes},
            reference=True,
            return_lse=True,
        )

    def theirs(q, k, v, sinks, slopes):
        score = lambda s, h, qi, ki: torch.tanh(s) * 3 + slopes[h] * (ki - qi)  # noqa: E731
        return replicated.attend(q, k, v, positions=(at, at), score=score, sinks=sinks)

    given = (q, k, v, sinks, slopes)
    (results, found), (expected, wanted) = gradients(ours, given), gradients(theirs, given)
    for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
        assert error(one, other) <= 1e-12


def random_score(random, depth=4):
    """Return a score function of traced values and of tensors alike, which PyTorch can differentiate."""
    if depth == 0:
        return random.choice(["s", "s", "slopes[h]", "bias[qi, ki]", "slopes[h] * (ki - qi)", "0.7 * s"])
    a, b = (random_score(random, depth - 1) for _ in range(2))
    return random.choice(
        [
            f"({a} + {b})",
            f"({a} - 0.5 * {b})",
            f"({a} * torch.tanh({b}))",
            f"({a} / (1.5 + {b} * {b}))",
            f"torch.exp(0.2 * torch.tanh({a}))",
            f"torch.log(1.5 + torch.abs({a}))",
            f"torch.sqrt(1.0 + {a} * {a})",
            f"torch.maximum({a}, {b})",
            f"torch.minimum({a}, {b})",
            f"torch.where({a} > {b}, {a}, -{b})",
            f"torch.where((ki & 1) == 0, {a}, {b})",
        ]
    )


def test_random_score_functions():
    """Random score functions, against PyTorch in float64 with the same functions."""
    random = numpy.random.default_rng(11)
    q, k, v = leaves((6, 2, 8), (6, 1, 8), (6, 1, 8))
    slopes, bias = leaves((2,), (6, 6), seed=4)
    at = torch.arange(6)
    for _ in range(25):
        text = f"s + {random_score(random)} + 0.1 * slopes[h] + 0.1 * bias[qi, ki]"
        score = eval(f"lambda s, h, qi, ki, slopes, bias: {text}", {"torch": torch})
        tables = {"slopes": slopes, "bias": bias}

        def ours(q, k, v, slopes, bias, score=score):
            tables = {"slopes": slopes, "bias": bias}
            options = dict(causal=True, cu_seqlens=[0, 6], scale=0.375, score=score, tensors=tables)
            return attn.attend(q, k, v, **options, reference=True, return_lse=True)

        def theirs(q, k, v, slopes, bias, score=score):
            scored = functools.partial(score, slopes=slopes, bias=bias)
            return replicated.attend(q, k, v, positions=(at, at), scale=0.375, score=scored)

        given = (q, k, v, *tables.values())
        (results, found), (expected, wanted) = gradients(ours, given), gradients(theirs, given)
        for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
            assert error(one, other) <= 1e-6, text  # a kernel's constants have 32 bits


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5, 8, 16])
def test_forests_are_replicated_attention(depth):
    """Forward and backward, against float64 PyTorch in which every node has copies of all nodes above it."""
    for seed in range(3 if depth < 8 else 1):
        forest = replicated.random_forest(numpy.random.default_rng(100 * depth + seed), depth)
        given = leaves((forest.tokens, 4, 16), (forest.tokens, 2, 16), (forest.tokens, 2, 8), seed=seed)
        results, found = gradients(reference(causal=True, forest=forest), given)
        theirs = functools.partial(replicated.attend_forest, forest)
        expected, wanted = gradients(theirs, given)
        for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
            assert error(one, other) <= 1e-12


def test_what_float32_gives():
    exact = dense()
    given = [tensor.detach().float().requires_grad_() for tensor in exact]
    (out, lse), found = gradients(reference(causal=True), given)
    assert out.dtype == lse.dtype == torch.float32 and all(g.dtype == torch.float32 for g in found)
    (wanted_out, _), wanted = gradients(reference(causal=True), exact)
    for one, other in zip((out, *found), (wanted_out, *wanted), strict=True):
        assert error(one, other) < 1e-6
