# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score functions: the traced program computes the function, and a function that cannot be traced is refused."""

import math
import subprocess
import sys
from pathlib import Path

import attn
import numpy
import pytest
from attn import math as am
from attn.describe.printing import f32_text
from attn.describe.score import trace
from attn.describe.tracing import as_f32
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
    "arith.minnumf": min,
    "arith.maxnumf": max,
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
    """Return the program's result, by the meanings that MLIR gives its operations (in f64)."""
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
    """A tensor as a score function indexes it, over numbers."""

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
    assume(abs(wanted) < 2**31)  # beyond that, integers of 32 bits wrap, and those of Python do not
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
    assert ops(lambda s, h, qi, ki: s + qi) == ["arith.sitofp", "arith.addf"]
    assert ops(lambda s, h, qi, ki: s * (qi // 2)) == [
        "arith.constant",
        "arith.shrsi",
        "arith.sitofp",
        "arith.mulf",
    ]
    assert "arith.andi" in ops(lambda s, h, qi, ki: s * (qi % 8))
    assert "arith.select" not in ops(lambda s, h, qi, ki: s * (ki // 3 + h % 3))  # never negative
    assert "arith.select" in ops(lambda s, h, qi, ki: s * (qi // 3))  # may be negative
    assert "arith.select" in ops(lambda s, h, qi, ki: s * (ki * 3 % 5))  # may wrap
    assert "arith.select" not in ops(lambda s, h, qi, ki: s * (h * 3 % 5))
    assert ops(lambda s, h, qi, ki: s + (qi == ki)) == ["arith.cmpi", "arith.uitofp", "arith.addf"]


def test_division_is_exact_but_inside_of_tanh():
    divided = ["arith.constant", "arith.divf"]
    assert ops(lambda s, h, qi, ki: s / 50.0) == ops(lambda s, h, qi, ki: s / 50) == divided
    assert ops(lambda s, h, qi, ki: s / 64.0) == ["arith.constant", "arith.mulf"]  # also exact
    assert ops(lambda s, h, qi, ki: s / 1e-42) == divided  # the inverse is not finite
    assert "arith.divf" not in ops(lambda s, h, qi, ki: 50.0 * am.tanh(s / 50.0))
    assert "arith.divf" in ops(lambda s, h, qi, ki: am.where(s / 3 > 1, am.tanh(s / 3), 0.0))
    by_number = trace(lambda s, h, qi, ki: am.to_float(am.to_int(qi / 41)))
    assert [interpret(by_number, 0.0, 0, qi, 0) for qi in (40, 41, 82, 83)] == [0, 1, 2, 2]


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


def test_a_function_is_traced_as_it_is_now():
    cap, factors = 30.0, [2.0]

    def score(s, h, qi, ki):
        return am.softcap(s * factors[0], cap) * score.temperature

    class Bias:
        slope = 1.0

        def __call__(self, s, h, qi, ki):
            return s + self.slope * (ki - qi)

    bias, seen = Bias(), set()
    score.temperature = 1.0
    seen |= {spec(score), spec(bias)}
    cap = 50.0
    seen |= {spec(score)}
    factors[0] = 3.0
    seen |= {spec(score)}
    score.temperature = 0.5
    bias.slope = 2.0
    seen |= {spec(score), spec(bias)}
    assert len(seen) == 6


def test_the_sign_of_a_zero_tells_programs_apart():
    one, other = (trace(lambda s, h, qi, ki, z=z: s / am.where(qi > ki, z, 1.0)) for z in (0.0, -0.0))
    assert one != other and spec(one) != spec(other)


def test_operators_need_no_import_of_anything_else():
    code = "from attn.describe.score import trace; print(len(trace(lambda s, h, qi, ki: -s * (qi - ki)).instructions))"
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


def test_logical_functions_ask_what_is_not_zero():
    both = trace(lambda s, h, qi, ki: numpy.where(numpy.logical_and(qi, ki), s, numpy.logical_not(h)))
    assert [interpret(both, 5.0, h, qi, ki) for h, qi, ki in ((0, 1, 2), (0, 1, 0), (3, 0, 2))] == [5, 1, 0]
    either = trace(lambda s, h, qi, ki: numpy.where(numpy.logical_xor(qi, ki), s, numpy.logical_or(h, 0)))
    assert [interpret(either, 5.0, h, qi, ki) for h, qi, ki in ((0, 1, 0), (4, 1, 2), (0, 0, 0))] == [5, 1, 0]
    assert (
        ops(lambda s, h, qi, ki: numpy.fmin(s, 0.5))[-1] == "arith.minnumf"
    )  # of a number and NaN, the number
    assert ops(lambda s, h, qi, ki: numpy.minimum(s, 0.5))[-1] == "arith.minimumf"


def flex_alibi(score, b, h, q_idx, kv_idx):
    return score - (q_idx - kv_idx) * 0.5 ** (h + 1)


@pytest.mark.parametrize("name", ["b", "batch", "batch_idx", "_b", "bsz"])
def test_functions_of_flex_attention_are_taken_if_the_batch_is_not_used(name):
    function = eval(f"lambda score, {name}, h, qi, ki: score * h - (qi - ki)")
    assert trace(function) == trace(lambda s, h, qi, ki: s * h - (qi - ki))
    assert trace(flex_alibi) == trace(lambda s, h, qi, ki: flex_alibi(s, None, h, qi, ki))
    tables = (("slopes", (32,)),)
    assert trace(lambda s, b, h, qi, ki, slopes: s + slopes[h] * ki, tables) == trace(
        lambda s, h, qi, ki, slopes: s + slopes[h] * ki, tables
    )


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
