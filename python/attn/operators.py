"""What Python's operators, NumPy's and PyTorch's functions write into a score program.

Integers divide as in Python, towards minus infinity, by positive constants only: a kernel has no way to refuse a
division by zero. Dividing by a constant multiplies by its inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import SpecError, given
from .tracing import Table, Traced, Tracer, as_f32


def tracer_of(*values: Any) -> Tracer | None:
    """The tracing that the values belong to; None where all are plain."""
    for value in values:
        if isinstance(value, Traced):
            return value.tracer
        if isinstance(value, Table):
            raise value.refusal()
    return None


def needs(*values: Any) -> Tracer:
    tracer = tracer_of(*values)
    if tracer is None:
        raise SpecError(f"score: expected a traced value among {given(values)}")
    return tracer


def _arithmetic(on_floats: str, on_ints: str) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.alike(a, b)
        natural = a.natural and b.natural and on_ints != "arith.subi"
        return t.write(on_floats if a.type == "f32" else on_ints, a.type, a, b, natural=natural)

    return operate


add = _arithmetic("arith.addf", "arith.addi")
sub = _arithmetic("arith.subf", "arith.subi")
mul = _arithmetic("arith.mulf", "arith.muli")
minimum = _arithmetic("arith.minimumf", "arith.minsi")
maximum = _arithmetic("arith.maximumf", "arith.maxsi")


def truediv(a: Any, b: Any) -> Traced:
    t = needs(a, b)
    a, b = t.alike(a, b, floats=True)
    if b.constant == 0:
        raise SpecError("score: division by zero")
    if b.constant is not None:
        inverse = as_f32(1 / b.constant)
        if 2.0**-126 <= abs(inverse) < float("inf"):
            return t.write("arith.mulf", "f32", a, t.constant(inverse))
    return t.write("arith.divf", "f32", a, b)


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
    quotient = t.write("arith.divsi", "i32", a, b, natural=a.natural)
    if a.natural:
        return quotient
    rest = t.write("arith.remsi", "i32", a, b)
    return where(rest < 0, quotient - 1, quotient)


def mod(a: Any, b: Any) -> Traced:
    t, a, b = _divisor(a, b, "%")
    rest = t.write("arith.remsi", "i32", a, b, natural=a.natural)
    if a.natural:
        return rest
    result = where(rest < 0, rest + b, rest)
    result.natural = True
    return result


def pow(a: Any, b: Any) -> Traced:
    """x ** n for a small whole n, x ** 0.5, and c ** x for a positive constant c."""
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
            power = mul(power, power)  # of the last nothing is kept
        return result if n > 0 else truediv(1.0, result)
    if a.constant is not None and a.constant > 0:
        from math import log2

        return function("math.exp2", mul(b, log2(a.constant)))
    raise SpecError(
        f"score: **: expected a whole exponent from 1 to 64 or 0.5, or a positive constant as base, got "
        f"{given(a.constant if a.constant is not None else a)} ** {given(n if n is not None else b)}. "
        "In general attn.math.exp2(y * attn.math.log2(x))"
    )


def _shift(op: str, sign: str) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.as_int(a, f"the left of {sign}"), t.as_int(b, f"the right of {sign}")
        if b.constant is None or not 0 <= b.constant <= 31:
            got = "a traced value" if b.constant is None else b.constant
            raise SpecError(f"score: the right of {sign}: expected a constant from 0 to 31, got {got}")
        return t.write(op, "i32", a, b, natural=a.natural and op == "arith.shrsi")

    return operate


lshift = _shift("arith.shli", "<<")
rshift = _shift("arith.shrsi", ">>")


def _bits(op: str, sign: str) -> Callable[[Any, Any], Traced]:
    def operate(a: Any, b: Any) -> Traced:
        t = needs(a, b)
        a, b = t.lift(a, f"the left of {sign}"), t.lift(b, f"the right of {sign}")
        if "f32" in (a.type, b.type):
            raise SpecError(f"score: {sign}: expected truth values or integers, got a float")
        if a.type != b.type:
            a, b = t.as_int(a), t.as_int(b)
        return t.write(op, a.type, a, b, natural=a.natural and b.natural)

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
    result = a if a.natural else maximum(a, neg(a))
    result.natural = True
    return result


def where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, bool):
        return a if condition else b
    t = needs(condition, a, b)
    condition = t.as_truth(condition)
    a, b = t.lift(a, "a choice"), t.lift(b, "a choice")
    if not a.type == b.type == "i1":
        a, b = t.alike(a, b)
    return t.write("arith.select", a.type, condition, a, b, natural=a.natural and b.natural)


def function(op: str, *values: Any, detail: Any = None) -> Traced:
    """A function of floats."""
    t = needs(*values)
    return t.write(op, "f32", *(t.as_float(value) for value in values), detail=detail)


def _swapped(operate: Callable[[Any, Any], Traced]) -> Callable[[Any, Any], Traced]:
    return lambda a, b: operate(b, a)


_BINARY = {
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
_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}
_UNARY = {"neg": neg, "pos": pos, "abs": absolute, "invert": invert}


def install() -> None:
    """Gives the stand-ins Python's operators."""
    for name, operate in (_BINARY | _COMPARISONS | _UNARY).items():
        setattr(Traced, f"__{name}__", operate)
    for name, operate in _BINARY.items():
        setattr(Traced, f"__r{name}__", _swapped(operate))


# Other libraries' names of the same.
_FOREIGN: dict[str, Callable[..., Any]] = {
    **_BINARY,
    **{f"r{name}": _swapped(operate) for name, operate in _BINARY.items()},
    **_COMPARISONS,
    **_UNARY,
    "subtract": sub,
    "multiply": mul,
    "divide": truediv,
    "div": truediv,
    "true_divide": truediv,
    "rdiv": _swapped(truediv),
    "rsub": _swapped(sub),
    "floor_divide": floordiv,
    "remainder": mod,
    "power": pow,
    "negative": neg,
    "positive": pos,
    "absolute": absolute,
    "fabs": absolute,
    "bitwise_and": and_,
    "bitwise_or": or_,
    "bitwise_xor": xor,
    "bitwise_not": invert,
    "logical_and": and_,
    "logical_or": or_,
    "logical_xor": xor,
    "logical_not": invert,
    "less": lt,
    "less_equal": le,
    "greater": gt,
    "greater_equal": ge,
    "equal": eq,
    "not_equal": ne,
    "fmin": minimum,
    "fmax": maximum,
}


def foreign(shown: str, name: str, args: Any, options: dict[str, Any]) -> Any:
    """A function of NumPy or PyTorch that was called on a traced value."""
    from . import math

    name = name.strip("_")
    if name == "getitem":
        needs(*(args[1] if isinstance(args[1], tuple) else args[1:])).refuse_index()
    operate = _FOREIGN.get(name) or (getattr(math, name) if name in math.__all__ else None)
    if operate is None:
        raise SpecError(
            f"score: {shown} is not supported in score functions; there are Python's operators and attn.math."
            + ", ".join(math.__all__)
        )
    try:
        return operate(*args, **options)
    except TypeError as error:
        raise SpecError(f"score: {shown}: {error}") from None
