# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score functions against NumPy: the same function of int32 and float32 arrays gives the same bits."""

import attn
import numpy
import pytest
from attn import math as am
from attn.describe.score import trace
from hypothesis import given, settings
from hypothesis import strategies as st

I32, F32 = numpy.int32, numpy.float32
TABLES = {
    "slopes": numpy.linspace(-1, 1, 32, dtype=F32),
    "bias": (numpy.arange(32 * 9).reshape(32, 9) / 50).astype(F32),
}
SHAPES = tuple((name, table.shape) for name, table in TABLES.items())


class OnArrays:
    """The functions of attn.math, for arrays."""

    where, minimum, maximum, abs = numpy.where, numpy.minimum, numpy.maximum, numpy.abs

    @staticmethod
    def to_float(x):
        return x.astype(F32)

    @staticmethod
    def to_int(x):
        if x.dtype != F32:
            return x.astype(I32)
        bound = F32(2**31 - 128)
        return numpy.trunc(numpy.fmax(numpy.fmin(x, bound), -bound)).astype(I32)

    @staticmethod
    def divide(a, b):
        return (a.astype(F32) / numpy.asarray(b, F32)).astype(F32)


class OnTraced:
    """Functions that attn.math has no name for."""

    def __getattr__(self, name):
        return getattr(am, name)

    @staticmethod
    def divide(a, b):
        return a / b


class Clamped:
    """A table as a score function indexes it, over arrays."""

    def __init__(self, table):
        self.table = table

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        return self.table[
            tuple(numpy.clip(i, 0, n - 1) for i, n in zip(index, self.table.shape, strict=True))
        ]


def combine(templates, *inner):
    return st.tuples(st.sampled_from(templates), *inner).map(lambda made: made[0].format(*made[1:]))


def extend(expressions):
    """Return (integers, floats, truths) with one more level of operations."""
    i, f, b = expressions
    divisors = st.sampled_from([1, 2, 3, 7, 10, 41, 64, 1000, 104729, 2**30, 2**31 - 1]).map(str)
    shifts = st.integers(0, 31).map(str)
    integers = st.one_of(
        i,
        combine(
            ["({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} & {1})", "({0} | {1})", "({0} ^ {1})"], i, i
        ),
        combine(["({0} // {1})", "({0} % {1})"], i, divisors),
        combine(["({0} << {1})", "({0} >> {1})"], i, shifts),
        combine(["(-{0})", "(~{0})", "am.abs({0})", "({0} ** 3)"], i),
        combine(["am.minimum({0}, {1})", "am.maximum({0}, {1})"], i, i),
        combine(["am.where({0}, {1}, {2})"], b, i, i),
        combine(["am.to_int({0})"], st.one_of(f, b)),
    )
    numbers = st.sampled_from(["41", "0.1", "-3.0", "7919.0", "1e-3", "64"])
    floats = st.one_of(
        f,
        combine(["({0} + {1})", "({0} - {1})", "({0} * {1})", "am.divide({0}, {1})"], f, f),
        combine(["am.divide({0}, {1})"], st.one_of(i, f), numbers),
        combine(["am.minimum({0}, {1})", "am.maximum({0}, {1})"], f, f),
        combine(["(-{0})", "am.abs({0})"], f),
        combine(["am.where({0}, {1}, {2})"], b, f, f),
        combine(["am.to_float({0})"], st.one_of(i, b)),
        combine(["slopes[{0}]"], i),
        combine(["bias[{0}, {1}]"], i, i),
    )
    comparisons = [
        "({0} < {1})",
        "({0} <= {1})",
        "({0} > {1})",
        "({0} >= {1})",
        "({0} == {1})",
        "({0} != {1})",
    ]
    truths = st.one_of(
        combine(comparisons, i, i),
        combine(comparisons, f, f),
        combine(["({0} & {1})", "({0} | {1})", "({0} ^ {1})"], b, b),
        combine(["(~{0})"], b),
    )
    return integers, floats, truths


LEAVES = (
    st.sampled_from(["h", "qi", "ki", "(qi - ki)", "(qi * 7919 + ki)"]),
    st.sampled_from(["s", "slopes[h]", "bias[h, ki - qi]", "am.divide(qi, 41)"]),
    st.sampled_from(["(qi > ki)", "(s < slopes[h])"]),
)
SMALL = extend(extend(LEAVES))
INTEGERS, FLOATS, TRUTHS = extend(SMALL)


def on_arrays(expression, s, h, qi, ki):
    function = eval(f"lambda s, h, qi, ki, slopes, bias: {expression}", {"am": OnArrays})
    with numpy.errstate(all="ignore"):
        return function(s, h, qi, ki, **{name: Clamped(table) for name, table in TABLES.items()})


def traced(expression):
    return eval(f"lambda s, h, qi, ki, slopes, bias: {expression}", {"am": OnTraced()})


def trunc_div(a, b):
    quotient = numpy.abs(a.astype(numpy.int64)) // b
    return numpy.where(a < 0, -quotient, quotient).astype(I32)


# The meaning that MLIR gives each operation, in the types of its operands.
MEANING = {
    "addf": lambda a, b: a + b,
    "subf": lambda a, b: a - b,
    "mulf": lambda a, b: a * b,
    "divf": lambda a, b: a / b,
    "negf": lambda a: -a,
    "absf": numpy.abs,
    "minimumf": numpy.minimum,
    "maximumf": numpy.maximum,
    "minnumf": numpy.fmin,
    "maxnumf": numpy.fmax,
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "minsi": numpy.minimum,
    "maxsi": numpy.maximum,
    "divsi": trunc_div,
    "remsi": lambda a, b: a - b * trunc_div(a, b),
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "select": numpy.where,
    "sitofp": lambda a: a.astype(F32),
    "uitofp": lambda a: a.astype(F32),
    "extui": lambda a: a.astype(I32),
    "fptosi": lambda a: numpy.trunc(a).astype(I32),
}
COMPARE = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
DTYPES = {"f32": F32, "i32": I32, "i1": numpy.bool_}


def interpret(score, *arguments):
    values = list(arguments)
    for instruction in score.instructions:
        operands = [values[operand] for operand in instruction.operands]
        kind = instruction.op.partition(".")[2]
        if kind == "constant":
            value = numpy.full(arguments[0].shape, instruction.detail, DTYPES[instruction.type])
        elif kind == "read":
            value = Clamped(TABLES[instruction.detail])[tuple(operands)]
        elif kind in ("cmpf", "cmpi"):
            value = COMPARE[instruction.detail[0][-2:]](*operands)
        else:
            value = MEANING[kind](*operands)
        assert value.dtype == DTYPES[instruction.type], instruction
        values.append(value)
    return values[score.result]


EDGES = [-(2**31), -(2**31) + 1, -65536, -41, -1, 0, 1, 2, 5, 40, 41, 63, 64, 82, 1000, 99999, 2**24 + 1]
EDGES += [2**30, 2**31 - 42, 2**31 - 2, 2**31 - 1]


def points(seed, count=200):
    """Return scores, heads, and positions of queries and keys: small ones, and those near the ends of 32 bits."""
    random = numpy.random.default_rng(seed)
    qi = numpy.concatenate([random.choice(EDGES, count), random.integers(0, 5000, count)]).astype(I32)
    ki = numpy.concatenate([random.choice(EDGES[5:], count), random.integers(0, 5000, count)]).astype(I32)
    return random.normal(0, 5, 2 * count).astype(F32), random.integers(0, 32, 2 * count).astype(I32), qi, ki


@settings(max_examples=400, deadline=None)
@given(st.one_of(FLOATS, INTEGERS.map("am.to_float({})".format)), st.integers(0, 2**32))
def test_a_program_computes_what_numpy_computes(expression, seed):
    arguments = points(seed)
    wanted = on_arrays(expression, *arguments)
    with numpy.errstate(all="ignore"):
        got = interpret(trace(traced(expression), SHAPES), *arguments)
    assert wanted.dtype == F32
    numpy.testing.assert_array_equal(got, wanted)


def softmax_of(scores, v, visible):
    scores = numpy.where(visible, scores.astype(numpy.float64), -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


HEADS, ROWS, TOKENS = 4, 5, 70


def check_kernel(expression):
    """Compare a kernel of the host device, whose scores are the expression alone, with NumPy's float64 softmax."""
    pytest.importorskip("attn._attn", reason="the extension is not built")
    random = numpy.random.default_rng(1)
    q = random.normal(size=(1, ROWS, HEADS, 64)).astype(numpy.float16)
    k, v = (random.normal(size=(1, TOKENS, HEADS, 64)).astype(numpy.float16) for _ in range(2))
    tables = {"slopes": TABLES["slopes"][:HEADS], "bias": TABLES["bias"][:HEADS]}
    score = eval(f"lambda s, h, qi, ki, slopes, bias: {expression}", {"am": OnTraced()})
    out = attn.attend(q, k, v, causal=True, score=score, tensors=tables)

    h, qi, ki = numpy.meshgrid(
        numpy.arange(HEADS, dtype=I32),
        numpy.arange(TOKENS - ROWS, TOKENS, dtype=I32),
        numpy.arange(TOKENS, dtype=I32),
        indexing="ij",
    )
    function = eval(f"lambda s, h, qi, ki, slopes, bias: {expression}", {"am": OnArrays})
    with numpy.errstate(all="ignore"):
        scores = function(None, h, qi, ki, **{name: Clamped(table) for name, table in tables.items()})
    wanted = softmax_of(scores, v[0].astype(numpy.float64), qi >= ki)
    numpy.testing.assert_allclose(out[0].astype(numpy.float64), wanted, atol=2e-3)


FOUND = [
    "am.to_float(((qi * 7919 + ki) * 104729) % 10)",
    "am.to_float(((qi * 7919 + ki) * 104729) // 1000 % 7)",
    "am.to_float(am.to_int(am.divide(ki, 41)))",
    "am.to_float((ki - qi) // 8 + (ki - qi) % 7)",
    "slopes[am.to_int(am.divide(qi - ki, 7))]",
    "am.to_float(am.abs((qi - ki) * 104729 * 7919) % 9)",
]


@pytest.mark.parametrize("expression", FOUND)
def test_kernels_compute_what_numpy_computes(expression):
    check_kernel(expression)


WITHOUT_SCORE = (
    LEAVES[0],
    st.sampled_from(["slopes[h]", "bias[h, ki - qi]"]),
    st.sampled_from(["(qi > ki)"]),
)


@settings(max_examples=12, deadline=None)
@given(extend(extend(WITHOUT_SCORE))[0])
def test_kernels_compute_what_numpy_computes_with_integers(expression):
    check_kernel(f"am.to_float({expression} % 13) - am.to_float({expression} // 8 % 5)")
