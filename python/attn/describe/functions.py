# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of attn.math. On traced values they write code of the kernel; on numbers they compute."""

from __future__ import annotations

import builtins
import math as _math
from collections.abc import Callable
from typing import Any

from ..errors import SpecError, expected
from . import operators as _operators

__all__ = [
    "abs",
    "clamp",
    "clip",
    "exp",
    "exp2",
    "fma",
    "log",
    "log2",
    "maximum",
    "minimum",
    "sigmoid",
    "softcap",
    "sqrt",
    "tanh",
    "to_float",
    "to_int",
    "where",
]

inf = float("inf")


def _function(op: str, on_number: Callable[[float], float]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return on_number(x) if _operators.tracer_of(x) is None else _operators.function(op, x)

    function.__name__ = function.__qualname__ = op.removeprefix("math.")
    function.__doc__ = f"{function.__name__} of a float (an integer is converted)."
    return function


exp = _function("math.exp", _math.exp)
exp2 = _function("math.exp2", lambda x: 2.0**x)
log = _function("math.log", _math.log)
log2 = _function("math.log2", _math.log2)
sqrt = _function("math.sqrt", _math.sqrt)


def tanh(x: Any, *, approximate: bool = False) -> Any:
    """Return the hyperbolic tangent. `approximate`: the hardware's, several times as fast, with a relative error of
    2^-11. The attention's own tolerance is then 3e-2, after a soft cap of at most 50."""
    if _operators.tracer_of(x) is None:
        return _math.tanh(x)
    return _operators.tanh(x, bool(approximate))


LARGEST_CAP = 16384.0
"""The largest soft cap. The error of tanh is 6e-8, times the cap, and an LSE may be off by 2e-3."""


def check_cap(cap: float) -> None:
    """Refuse a soft cap that costs an LSE its digits. SpecError."""
    if cap > LARGEST_CAP:
        legal = f"at most {LARGEST_CAP:g}, as larger ones cost the LSE its digits"
        raise expected(SpecError, "softcap", legal, cap, nearest=LARGEST_CAP)


def softcap(x: Any, cap: float, *, approximate: bool = False) -> Any:
    """Return cap * tanh(x / cap): keeps x between -cap and cap."""
    return cap * tanh(x / cap, approximate=approximate)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    return a * b + c if _operators.tracer_of(a, b, c) is None else _operators.function("math.fma", a, b, c)


def abs(x: Any) -> Any:
    """Return the absolute value of a float or an integer."""
    return builtins.abs(x)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller of two."""
    return builtins.min(a, b) if _operators.tracer_of(a, b) is None else _operators.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger of two."""
    return builtins.max(a, b) if _operators.tracer_of(a, b) is None else _operators.maximum(a, b)


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Return x, but at least `min` and at most `max`; None: without that end."""
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


clamp = clip


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return `a` if the condition (a comparison, or several joined by &, |, ~) holds, else `b`. Both are computed."""
    if _operators.tracer_of(condition, a, b) is None:
        return a if condition else b
    return _operators.where(condition, a, b)


def to_float(x: Any) -> Any:
    """Return an integer or a truth value as a float."""
    tracer = _operators.tracer_of(x)
    return float(x) if tracer is None else tracer.as_float(x)


def to_int(x: Any) -> Any:
    """Return a float rounded towards zero, at most 2^31 - 128 in size, also for NaN; a truth value as 0 or 1."""
    tracer = _operators.tracer_of(x)
    if tracer is None:
        return int(x)
    x = tracer.lift(x, "the argument of to_int")
    if x.type != "f32":
        return tracer.as_int(x)
    # clip would let NaN through, and its value as an integer differs from machine to machine.
    bound = 2**31 - 128
    x = _operators.fmax(_operators.fmin(x, float(bound)), float(-bound))
    return tracer.write("arith.fptosi", "i32", x, span=(-bound, bound))
