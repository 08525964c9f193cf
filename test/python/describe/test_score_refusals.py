# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of score functions that cannot be traced, and their messages."""

import math

import attn
import numpy
import pytest
from attn import math as am

from examples import LLAMA


def spec(score, **tensors):
    return attn.Spec(**LLAMA, kv=[attn.Packed()], see=attn.causal(), score=score, tensors=tensors or None)


def refused(function, message, **tensors):
    with pytest.raises(attn.SpecError) as error:
        spec(function, **tensors)
    assert message in str(error.value)


def branches(s, h, qi, ki):
    if qi > ki:
        return s
    return s * 2


CAPTURED = numpy.zeros((32, 8), numpy.float32)

REFUSED = [
    (branches, "Instead of `if` use attn.math.where(condition, a, b)"),
    (lambda s, h, qi, ki: s if 0 < qi < ki else -s, "of chained comparisons two joined by &"),
    (lambda s, h, qi, ki: s * (qi and ki), "of `and`, `or`, `not` use &, |, ~"),
    (lambda s, h, qi, ki: min(s, 3.0), "of min and max attn.math.minimum"),
    (lambda s, h, qi, ki: math.tanh(s), "use the functions of attn.math instead of those of math"),
    (lambda s, h, qi, ki: int(s), "attn.math.to_int rounds towards zero"),
    (lambda s, h, qi, ki: round(s), "rounding is not supported"),
    (lambda s, h, qi, ki: s + CAPTURED.tolist()[0][h], "make it an argument of the score function"),
    (lambda s, h, qi, ki: s + CAPTURED[h, 0], "make it an argument of the score function"),
    (lambda s, h, qi, ki: s + CAPTURED, "is an array of shape (32, 8)"),
    (lambda s, h, qi, ki: s + sum(qi), "one number, it cannot be unpacked"),
    (lambda s, h, qi, ki: s[0], "one number, it has no elements"),
    (lambda s, h, qi, ki: len(s), "one number, it has no length"),
    (lambda s, h, qi, ki: numpy.sin(s), "numpy.sin is not supported in score functions; there are"),
    (lambda s, h, qi, ki: numpy.clip(s, 0, 1, out=1), "numpy.clip"),
    (lambda s, h, qi, ki: s @ s, "matrix products are not supported"),
    (lambda s, h, qi, ki: s + "1", "expected a number or a traced value, got '1'"),
    (lambda s, h, qi, ki: s + None, "expected a number or a traced value, got None"),
    (lambda s, h, qi, ki: None, "expected the new score to be returned, got None. Did you forget `return`?"),
    (lambda s, h, qi, ki: (s, s), "what score returns: expected a number or a traced value, got tuple"),
    (lambda s, h, qi, ki: math.inf, "expected a finite score or -inf, got inf"),
    (lambda s, h, qi, ki: s * math.nan, "expected constants that are numbers, got nan"),
    (
        lambda s, h, qi, ki: qi // ki,
        "the right of //: expected a positive integer constant, got a traced value",
    ),
    (lambda s, h, qi, ki: qi % -3, "the right of %: expected a positive integer constant, got -3"),
    (lambda s, h, qi, ki: s // 2, "// divides integers, got a float"),
    (lambda s, h, qi, ki: s / 0, "division by zero"),
    (lambda s, h, qi, ki: s * (qi << 32), "the right of <<: expected a constant from 0 to 31, got 32"),
    (
        lambda s, h, qi, ki: s * (qi >> ki),
        "the right of >>: expected a constant from 0 to 31, got a traced value",
    ),
    (lambda s, h, qi, ki: s & 1, "&: expected truth values or integers, got a float"),
    (lambda s, h, qi, ki: s * (qi + 2**31), "expected integers of 32 bits, got 2147483648"),
    (lambda s, h, qi, ki: am.where(qi, s, -s), "a condition is no truth value, expected a comparison"),
    (lambda s, h, qi, ki: s**qi, "**: expected a whole exponent from 1 to 64 or 0.5"),
    (lambda s, h, qi, ki: s**1.5, "**: expected a whole exponent from 1 to 64 or 0.5"),
    (lambda s: s, "expected a function that can be called as score(s, h, qi, ki)"),
    (3.0, "score: expected a function of the score, the query head and the positions"),
]


@pytest.mark.parametrize("function,message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_what_cannot_be_traced_is_refused(function, message):
    refused(function, message)


READS = [
    (
        lambda s, h, qi, ki, t: s + t,
        {"t": (32,)},
        "expected an element of <tensor t[32]>, as in t[h], got the tensor",
    ),
    (
        lambda s, h, qi, ki, t: t,
        {"t": (32,)},
        "expected an element of <tensor t[32]>, as in t[h], got the tensor",
    ),
    (lambda s, h, qi, ki, t: s + t[h, qi], {"t": (32,)}, "expected 1 indices, got more"),
    (lambda s, h, qi, ki, t: s + t[h], {"t": (32, 4)}, "as in t[h, qi]"),
    (lambda s, h, qi, ki, t: s + t[s], {"t": (32,)}, "index 0 of t is a float, expected an integer"),
    (
        lambda s, h, qi, ki, t: s + t[32],
        {"t": (32,)},
        "index 0 of t: expected an integer from 0 to 31, got 32",
    ),
    (
        lambda s, h, qi, ki, t: s + t[-1],
        {"t": ("n",)},
        "index 0 of t: expected an integer from 0 to n - 1, got -1",
    ),
    (lambda s, h, qi, ki, t: s + t[:], {"t": (32,)}, "no slices"),
    (lambda s, h, qi, ki: s, {"t": (32,)}, "called as score(s, h, qi, ki, t)"),
    (lambda s, h, qi, ki, t: s, {"t": 32}, "tensors['t']: expected a shape of 1 to 8 extents"),
    (
        lambda s, h, qi, ki, t: s,
        {"t": numpy.zeros(3, bool)},
        "tensors['t']: expected float32, got bool; nearest legal: its float32 copy, which holds",
    ),
    (lambda s, h, qi, ki, t: s, {"t": ()}, "tensors['t']: expected a shape of 1 to 8 extents"),
    (lambda s, h, qi, ki, t: s, {"t": (0,)}, "tensors['t']: expected an integer from 1 to 2147483647, got 0"),
    (lambda s, h, qi, ki, **t: s, {"lse": (32,)}, "tensors['lse']: expected a name that no kernel reserves"),
    (lambda s, h, qi, ki, **t: s, {"kv": (32,)}, "tensors['kv']: expected a name of its own"),
]


@pytest.mark.parametrize("function,tensors,message", READS, ids=[message[:50] for *_, message in READS])
def test_wrong_reads_are_refused(function, tensors, message):
    refused(function, message, **tensors)


def test_values_of_another_tracing_are_refused():
    kept = []
    spec(lambda s, h, qi, ki: kept.append(s) or s)
    refused(lambda s, h, qi, ki: s + kept[0], "belongs to another tracing")


def test_what_the_function_itself_raises_is_passed_on():
    def score(s, h, qi, ki):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        spec(score)


@pytest.mark.parametrize("name", ["sin", "rand_like"])
def test_other_functions_of_pytorch_are_refused(name):
    torch = pytest.importorskip("torch")
    refused(lambda s, h, qi, ki: getattr(torch, name)(s), f"torch.{name} is not supported in score functions")


def test_captured_tensors_of_pytorch_are_refused():
    torch = pytest.importorskip("torch")
    table = torch.zeros(32)
    refused(lambda s, h, qi, ki: s + table, "is an array of shape (32,)")
    refused(lambda s, h, qi, ki: s + table[h], "make it an argument of the score function")


@pytest.mark.parametrize(
    "function",
    [
        lambda s, b, h, qi, ki: s * b,
        lambda s, b, h, qi, ki: b + s,
        lambda s, b, h, qi, ki: am.where(b == 0, s, 0.0),
        lambda s, b, h, qi, ki: s if b else -s,
        lambda s, b, h, qi, ki: s * am.tanh(b),
        lambda s, b, h, qi, ki: s + CAPTURED[b],
        lambda s, b, h, qi, ki: numpy.maximum(s, b),
        lambda s, b, h, qi, ki: numpy.tanh(b),
        lambda s, b, h, qi, ki: -b,
        lambda s, b, h, qi, ki: b,
    ],
)
def test_the_batch_index_is_refused_where_it_is_used(function):
    refused(function, "the batch index was used, the second of five arguments")
