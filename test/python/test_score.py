"""Score functions: what is traced computes what the function computes; what cannot be traced is refused."""

import gc
import math
import subprocess
import sys
from pathlib import Path

import attn
import numpy
import pytest
from attn import math as am
from attn.printing import f32_text
from attn.score import trace
from attn.tracing import as_f32
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples import LLAMA, opt

TABLES = (("slopes", (32,)), ("bias", (32, 9)))
VALUES = {"slopes": numpy.linspace(-1, 1, 32), "bias": numpy.arange(32 * 9).reshape(32, 9) / 50}


def spec(score, **tensors):
    return attn.Spec(**LLAMA, kv=[attn.Packed()], see=attn.causal(), score=score, tensors=tensors or None)


def wrap(n):
    return (n + 2**31) % 2**32 - 2**31


def truncate(a, b):
    return int(math.copysign(abs(a) // b, a)) if a else 0


EVALUATE = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: (
        a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan
    ),
    "arith.negf": lambda a: -a,
    "arith.minimumf": min,
    "arith.maximumf": max,
    "arith.addi": lambda a, b: wrap(a + b),
    "arith.subi": lambda a, b: wrap(a - b),
    "arith.muli": lambda a, b: wrap(a * b),
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.divsi": truncate,
    "arith.remsi": lambda a, b: a - b * truncate(a, b),
    "arith.shli": lambda a, b: wrap(a << b),
    "arith.shrsi": lambda a, b: a >> b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.select": lambda c, a, b: a if c else b,
    "arith.sitofp": float,
    "arith.uitofp": float,
    "arith.extui": int,
    "arith.fptosi": int,
    "math.tanh": math.tanh,
    "math.exp": math.exp,
    "math.exp2": lambda a: 2.0**a,
    "math.log": math.log,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
    "math.absf": abs,
    "math.fma": lambda a, b, c: a * b + c,
}
COMPARE = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def interpret(score, *arguments):
    """What the program computes, by the meanings that MLIR gives its operations (in f64)."""
    values = list(arguments)
    for instruction in score.instructions:
        operands = [values[operand] for operand in instruction.operands]
        if instruction.op == "arith.constant":
            values.append(instruction.detail)
        elif instruction.op == "attn.read":
            table = VALUES[instruction.detail]
            clamped = (max(0, min(i, n - 1)) for i, n in zip(operands, table.shape, strict=True))
            values.append(float(table[tuple(clamped)]))
        elif instruction.op in ("arith.cmpf", "arith.cmpi"):
            values.append(COMPARE[instruction.detail[0][-2:]](*operands))
        else:
            values.append(EVALUATE[instruction.op](*operands))
    return values[score.result]


class Clamped:
    """A tensor as a score function sees it, on numbers."""

    def __init__(self, table):
        self.table = table

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        return float(
            self.table[tuple(max(0, min(i, n - 1)) for i, n in zip(index, self.table.shape, strict=True))]
        )


FLOATS = st.sampled_from(["s", "0.5", "-2.0", "3.25", "slopes[h]", "bias[h, ki - qi]"])
INTEGERS = st.sampled_from(["h", "qi", "ki", "3", "-7", "100"])


def combine(templates, *inner):
    return st.tuples(st.sampled_from(templates), *inner).map(lambda made: made[0].format(*made[1:]))


INTEGER_EXPRESSIONS = st.recursive(
    INTEGERS,
    lambda i: combine(
        [
            "({0} + {1})",
            "({0} - {1})",
            "({0} * {1})",
            "({0} // 3)",
            "({0} % 5)",
            "am.minimum({0}, {1})",
            "am.maximum({0}, {1})",
            "abs({0})",
            "(-{0})",
            "({0} >> 2)",
            "({0} << 1)",
            "({0} & {1})",
            "({0} ^ {1})",
            "(~{0})",
            "am.where({0} < {1}, {0}, 4)",
            "am.where(({0} > h) & ~({1} >= ki) | ({0} == qi), {1}, {0})",
        ],
        i,
        i,
    ),
    max_leaves=5,
)
EXPRESSIONS = st.recursive(
    st.one_of(FLOATS, INTEGER_EXPRESSIONS),
    lambda x: combine(
        [
            "({0} + {1})",
            "({0} - {1})",
            "({0} * {1})",
            "({0} / 7.0)",
            "({0} / 4)",
            "am.tanh({0})",
            "am.softcap({0}, 20.0)",
            "am.sigmoid(am.clip({0}, -30.0, 30.0))",
            "am.exp2(am.minimum({0}, 5.0))",
            "am.exp(am.minimum({0}, 5))",
            "am.log(abs({0}) + 1)",
            "am.log2(abs({0}) + 1.5)",
            "am.sqrt(abs({0}))",
            "am.fma({0}, 2.0, {1})",
            "am.where({0} <= {1}, {0}, {1})",
            "am.where({0} != {1}, 1, 0)",
            "am.to_float({0})",
            "am.to_int(am.clip({0}, -1e6, 1e6))",
            "am.clip({0}, min=-3, max=3)",
            "({0} * 0.1) ** 3",
            "(abs({0}) + 1.0) ** -2",
            "2.0 ** am.minimum({0}, 4.0)",
        ],
        x,
        x,
    ),
    max_leaves=5,
)
ARGUMENTS = st.tuples(
    st.floats(-20, 20).map(as_f32), st.integers(0, 31), st.integers(0, 500), st.integers(0, 500)
)


def function_of(expression):
    return eval(f"lambda s, h, qi, ki, slopes, bias: {expression}", {"am": am})


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, ARGUMENTS)
def test_the_program_computes_what_the_function_computes(expression, arguments):
    function = function_of(expression)
    wanted = function(*arguments, **{name: Clamped(table) for name, table in VALUES.items()})
    assume(abs(wanted) < 2**31)  # beyond that integers of 32 bits wrap, and Python's do not
    got = interpret(trace(function, TABLES), *arguments)
    assert math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-4)


@settings(max_examples=30, deadline=None)
@given(EXPRESSIONS)
def test_the_text_of_every_program_is_legal(expression):
    opt(spec(function_of(f"s + ({expression})"), slopes=(32,), bias=(32, 9)).mlir(), "--emit=problem")


def ops(function, *tensors):
    return [instruction.op for instruction in trace(function, tensors).instructions]


def test_instructions():
    assert ops(lambda s, h, qi, ki: s) == []
    assert ops(lambda s, h, qi, ki: s / 50.0) == ["arith.constant", "arith.mulf"]
    assert ops(lambda s, h, qi, ki: s + qi) == ["arith.sitofp", "arith.addf"]
    assert ops(lambda s, h, qi, ki: s * (qi // 2)) == [
        "arith.constant",
        "arith.divsi",
        "arith.sitofp",
        "arith.mulf",
    ]
    assert "arith.remsi" in ops(lambda s, h, qi, ki: s * ((qi - ki) // 2))  # may be negative
    assert ops(lambda s, h, qi, ki: s + (qi == ki)) == ["arith.cmpi", "arith.uitofp", "arith.addf"]


def test_what_the_result_does_not_need_is_dropped():
    def score(s, h, qi, ki, slopes, bias):
        unused = bias[h, 0] * 3.0
        assert unused is not None
        return s + slopes[h]

    traced = spec(score, slopes=(32,), bias=(32, 9))
    assert [name for name, _ in traced.tensors] == ["slopes"]
    assert "bias" not in traced.mlir()


def test_equal_instructions_are_written_once():
    assert ops(lambda s, h, qi, ki: am.tanh(s * 0.5) + am.tanh(s * 0.5)).count("math.tanh") == 1
    assert ops(lambda s, h, qi, ki: am.where(s > 0.0, 0.0, -0.0)).count("arith.constant") == 2


def test_equal_functions_make_equal_specs():
    assert spec(lambda s, h, qi, ki: s * 2) == spec(lambda score, *_: score * 2.0)
    assert spec(lambda s, h, qi, ki: s * 2) != spec(lambda s, h, qi, ki: s * 3)


def test_a_function_is_traced_once_and_not_kept_alive():
    calls = []

    def score(s, h, qi, ki):
        calls.append(1)
        return s * 2

    spec(score)
    spec(score)
    assert len(calls) == 1

    from attn.score import _traced

    gc.collect()
    before = len(_traced)
    del score
    gc.collect()
    assert len(_traced) == before - 1


def test_operators_need_no_import_of_anything_else():
    code = "from attn.score import trace; print(len(trace(lambda s, h, qi, ki: -s * (qi - ki)).instructions))"
    root = Path(attn.__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert result.stdout == "4\n", result.stderr


def test_a_closure_is_a_constant():
    cap = 30.0
    assert "30.0 : f32" in spec(lambda s, h, qi, ki: am.softcap(s, cap)).mlir()


def test_approximate_tanh_is_marked():
    exact, fast = (trace(lambda s, h, qi, ki, a=a: am.softcap(s, 30.0, approximate=a)) for a in (False, True))
    assert not exact.approximate and fast.approximate
    text = spec(lambda s, h, qi, ki: am.softcap(s, 30.0, approximate=True)).mlir()
    assert "math.tanh" in text and " fastmath<afn> : f32" in text
    assert '"approximate": true' in opt(text, "--emit=manifest")


def test_masks_by_infinity():
    text = spec(lambda s, h, qi, ki: am.where(qi // 64 == ki // 64, s, -am.inf)).mlir()
    assert "0xFF800000 : f32" in text
    opt(text, "--emit=ptx")


def test_dynamic_extents_are_named():
    text = spec(lambda s, h, qi, ki, bias: s + bias[h, ki], bias=(32, "most")).mlir()
    assert 'tensor<32x?xf32> {attn.name = "bias", attn.dims = ["most"]}' in text
    opt(text, "--emit=problem")


def test_partial_indices():
    partial = trace(lambda s, h, qi, ki, bias: s + bias[h][ki], (("bias", (32, 9)),))
    assert partial == trace(lambda s, h, qi, ki, bias: s + bias[h, ki], (("bias", (32, 9)),))


def test_numpy_functions_and_scalars():
    half, table = numpy.float32(0.5), numpy.zeros((32,))
    same = trace(lambda s, h, qi, ki: am.where(s > 0.5, am.tanh(s), am.maximum(0.5 * s, am.abs(s))))
    assert same == trace(
        lambda s, h, qi, ki: numpy.where(s > half, numpy.tanh(s), numpy.maximum(half * s, numpy.abs(s)))
    )
    assert spec(lambda s, h, qi, ki, slopes: s * slopes[h], slopes=table).tensors == (("slopes", (32,)),)


def test_pytorch_functions_and_scalars():
    torch = pytest.importorskip("torch")
    half = torch.tensor(0.5)
    same = trace(
        lambda s, h, qi, ki: am.where((s > 0.5) & (qi >= ki), am.tanh(s), am.clip(0.5 * s, -1.0, 1.0))
    )
    assert same == trace(
        lambda s, h, qi, ki: torch.where(
            torch.logical_and(s > half, torch.ge(qi, ki)), torch.tanh(s), torch.clamp(half * s, -1.0, 1.0)
        )
    )
    assert trace(lambda s, h, qi, ki: torch.sigmoid(s)) == trace(lambda s, h, qi, ki: am.sigmoid(s))


def test_functions_on_numbers_compute():
    assert am.tanh(0.5) == math.tanh(0.5) and am.minimum(2, 3) == 2 and am.where(False, 1, 2) == 2
    assert am.clip(7, 0, 5) == 5 and am.softcap(1e9, 30.0) == 30.0 and am.to_int(-2.5) == -2


@given(st.floats(width=32))
def test_constants_survive_as_text(value):
    text = f32_text(value)
    if value - value != 0:
        assert text == f"0x{numpy.float32(value).view(numpy.uint32):08X}"
    else:
        assert numpy.float32(float(text)) == numpy.float32(value) and "." in text


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
