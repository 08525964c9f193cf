# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python's operators, and NumPy's and PyTorch's functions, as instructions of a score program.

Integers compute as NumPy's and PyTorch's int32 do: a result beyond 32 bits wraps, and // and % round it towards minus
infinity. They divide by positive constants only: a kernel cannot report a division by zero.

Floats divide exactly, rounded once to f32. That takes some ten instructions. Where the result is the same, the program
multiplies by the inverse: for powers of two, and inside of tanh, which is not exact to the last bit itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any

from ..errors import SpecError, given
from .tracing import INT32, Absent, Span, Table, Traced, Tracer, as_f32, unless_wrapped


def tracer_of(*values: Any) -> Tracer | None:
    """Return the tracing that the values belong to; None if all are plain."""
    for value in values:
        if isinstance(value, Traced):
            return value.tracer
        if isinstance(value, (Table, Absent)):
            raise value.refusal()
    return None


def needs(*values: Any) -> Tracer:
    tracer = tracer_of(*values)
    if tracer is None:
        raise SpecError(f"score: expected a traced value among {given(values)}")
    return tracer


def _arithmetic(
    on_floats: str, on_ints: str, span: Callable[[Span, Span], Span]
) -> Callable[[Any, Any], Traced]:
    """Make an operator. `span`: the interval of a result, from those of two integers."""

    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.alike(a, b)
        if a.type == "f32":
            return t.write(on_floats, "f32", a, b)
        return t.write(on_ints, "i32", a, b, span=unless_wrapped(*span(a.span, b.span)))

    return operate


def _products(a: Span, b: Span) -> Span:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _smaller(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), min(a[1], b[1])


def _larger(a: Span, b: Span) -> Span:
    return max(a[0], b[0]), max(a[1], b[1])


add = _arithmetic("arith.addf", "arith.addi", lambda a, b: (a[0] + b[0], a[1] + b[1]))
sub = _arithmetic("arith.subf", "arith.subi", lambda a, b: (a[0] - b[1], a[1] - b[0]))
mul = _arithmetic("arith.mulf", "arith.muli", _products)
minimum = _arithmetic("arith.minimumf", "arith.minsi", _smaller)
maximum = _arithmetic("arith.maximumf", "arith.maxsi", _larger)
fmin = _arithmetic("arith.minnumf", "arith.minsi", _smaller)  # The result of a number and NaN is the number.
fmax = _arithmetic("arith.maxnumf", "arith.maxsi", _larger)


def truediv(a: Any, b: Any) -> Traced:
    t = needs(a, b)
    a, b = t.alike(a, b, floats=True)
    if b.constant == 0:
        raise SpecError("score: division by zero")
    quotient = None
    if b.constant is not None and abs(frexp(b.constant)[0]) == 0.5:  # The inverse of a power of two is exact.
        quotient = _times_inverse(a, b)
    return t.write("arith.divf", "f32", a, b) if quotient is None else quotient


def _times_inverse(a: Traced, b: Traced) -> Traced | None:
    inverse = as_f32(1 / b.constant)
    return mul(a, inverse) if 2.0**-126 <= abs(inverse) < float("inf") else None


def tanh(x: Any, approximate: bool = False) -> Traced:
    t = needs(x)
    x = t.as_float(x)
    quotient = t.instruction(x)
    if quotient is not None and quotient.op == "arith.divf":
        a, b = (t.values[index] for index in quotient.operands)
        product = None if b.constant is None else _times_inverse(a, b)
        x = x if product is None else product
    return t.write("math.tanh", "f32", x, detail=approximate)


def _divisor(a: Any, b: Any, sign: str) -> tuple[Tracer, Traced, Traced]:
    t = needs(a, b)
    a, b = t.lift(a, f"the left of {sign}"), t.lift(b, f"the right of {sign}")
    if "f32" in (a.type, b.type):
        raise SpecError(f"score: {sign} divides integers, got a float; attn.math.to_int rounds towards zero")
    a, b = t.as_int(a), t.as_int(b)
    if b.constant is None or b.constant <= 0:
        got = "a traced value" if b.constant is None else b.constant
        raise SpecError(f"score: the right of {sign}: expected a positive integer constant, got {got}")
    return t, a, b


def floordiv(a: Any, b: Any) -> Traced:
    t, a, b = _divisor(a, b, "//")
    n = b.constant
    span = a.span[0] // n, a.span[1] // n
    if n & (n - 1) == 0:  # A shift rounds down.
        return t.write("arith.shrsi", "i32", a, t.constant(n.bit_length() - 1), span=span)
    if a.natural:
        return t.write("arith.divsi", "i32", a, b, span=span)
    quotient, rest = t.write("arith.divsi", "i32", a, b), t.write("arith.remsi", "i32", a, b)
    result = where(rest < 0, quotient - 1, quotient)
    result.span = span
    return result


def mod(a: Any, b: Any) -> Traced:
    t, a, b = _divisor(a, b, "%")
    n = b.constant
    span = 0, n - 1
    if n & (n - 1) == 0:
        return t.write("arith.andi", "i32", a, t.constant(n - 1), span=span)
    if a.natural:
        return t.write("arith.remsi", "i32", a, b, span=span)
    rest = t.write("arith.remsi", "i32", a, b)
    result = where(rest < 0, rest + b, rest)
    result.span = span
    return result


def pow(a: Any, b: Any) -> Traced:
    """Return x ** n for a small whole n, x ** 0.5, and c ** x for a positive constant c. SpecError for other powers."""
    t = needs(a, b)
    a, b = t.lift(a, "the base of **"), t.lift(b, "the exponent of **")
    n = b.constant
    if n == 0.5:
        return function("math.sqrt", a)
    if n is not None and 1 <= abs(n) <= 64 and n == int(n):
        result, power = None, a if n > 0 else t.as_float(a)
        for bit in reversed(f"{abs(int(n)):b}"):
            if bit == "1":
                result = power if result is None else mul(result, power)
            power = mul(power, power)  # The last product is dropped.
        return result if n > 0 else truediv(1.0, result)
    if a.constant is not None and a.constant > 0:
        from math import log2

        return function("math.exp2", mul(b, log2(a.constant)))
    raise SpecError(
        f"score: **: expected a whole exponent from 1 to 64 or 0.5, or a positive constant as base, got "
        f"{given(a.constant if a.constant is not None else a)} ** {given(n if n is not None else b)}. "
        "In general attn.math.exp2(y * attn.math.log2(x))"
    )


def _shift(op: str, sign: str, span: Callable[[Span, int], Span]) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.as_int(a, f"the left of {sign}"), t.as_int(b, f"the right of {sign}")
        if b.constant is None or not 0 <= b.constant <= 31:
            got = "a traced value" if b.constant is None else b.constant
            raise SpecError(f"score: the right of {sign}: expected a constant from 0 to 31, got {got}")
        return t.write(op, "i32", a, b, span=unless_wrapped(*span(a.span, b.constant)))

    return operate


lshift = _shift("arith.shli", "<<", lambda a, n: (a[0] << n, a[1] << n))
rshift = _shift("arith.shrsi", ">>", lambda a, n: (a[0] >> n, a[1] >> n))


def _bits(op: str, sign: str) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.lift(a, f"the left of {sign}"), t.lift(b, f"the right of {sign}")
        if "f32" in (a.type, b.type):
            raise SpecError(f"score: {sign}: expected truth values or integers, got a float")
        if a.type != b.type:
            a, b = t.as_int(a), t.as_int(b)
        span = INT32
        # The result has only bits of the natural operand.
        if op == "arith.andi" and (a.natural or b.natural):
            span = 0, min(x.span[1] for x in (a, b) if x.natural)
        elif a.natural and b.natural:
            span = 0, 2 ** max(a.span[1].bit_length(), b.span[1].bit_length()) - 1
        return t.write(op, a.type, a, b, span=span)

    return operate


and_ = _bits("arith.andi", "&")
or_ = _bits("arith.ori", "|")
xor = _bits("arith.xori", "^")


def _compare(on_floats: str, on_ints: str) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.alike(a, b)
        if a.type == "f32":
            return t.write("arith.cmpf", "i1", a, b, detail=(on_floats, "f32"))
        return t.write("arith.cmpi", "i1", a, b, detail=(on_ints, "i32"))

    return operate


lt, le = _compare("olt", "slt"), _compare("ole", "sle")
gt, ge = _compare("ogt", "sgt"), _compare("oge", "sge")
eq, ne = _compare("oeq", "eq"), _compare("une", "ne")


def invert(a: Any) -> Traced:
    return xor(a, True if a.type == "i1" else -1)


def neg(a: Any) -> Traced:
    t = needs(a)
    return t.write("arith.negf", "f32", a) if a.type == "f32" else sub(0, a)


def pos(a: Any) -> Traced:
    return a


def absolute(a: Any) -> Traced:
    if a.type == "f32":
        return function("math.absf", a)
    if a.type == "i1" or a.natural:
        return a.tracer.as_int(a)
    result = maximum(a, neg(a))
    if a.span[0] > INT32[0]:  # The least integer has no opposite.
        result.span = 0, max(-a.span[0], a.span[1])
    return result


def where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, bool):
        return a if condition else b
    t = needs(condition, a, b)
    condition = t.as_truth(condition)
    a, b = t.lift(a, "a choice"), t.lift(b, "a choice")
    if not a.type == b.type == "i1":
        a, b = t.alike(a, b)
    span = min(a.span[0], b.span[0]), max(a.span[1], b.span[1])
    return t.write("arith.select", a.type, condition, a, b, span=span)


def function(op: str, *values: Any, detail: Any = None) -> Traced:
    """Apply a function of floats."""
    t = needs(*values)
    return t.write(op, "f32", *(t.as_float(value) for value in values), detail=detail)


def swapped(operate: Callable[[Any, Any], Traced]) -> Callable[[Any, Any], Traced]:
    return lambda a, b: operate(b, a)


BINARY = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "truediv": truediv,
    "floordiv": floordiv,
    "mod": mod,
    "pow": pow,
    "lshift": lshift,
    "rshift": rshift,
    "and": and_,
    "or": or_,
    "xor": xor,
}
COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}
UNARY = {"neg": neg, "pos": pos, "abs": absolute, "invert": invert}


def install() -> None:
    """Give the stand-ins Python's operators."""
    for name, operate in (BINARY | COMPARISONS | UNARY).items():
        setattr(Traced, f"__{name}__", operate)
        setattr(Absent, f"__{name}__", Absent.refuse)
    for name, operate in BINARY.items():
        setattr(Traced, f"__r{name}__", swapped(operate))
        setattr(Absent, f"__r{name}__", Absent.refuse)
