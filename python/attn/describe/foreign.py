# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of NumPy and PyTorch on traced values: they do the same as those of attn.math with the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import SpecError
from . import functions
from .operators import (
    BINARY,
    COMPARISONS,
    UNARY,
    absolute,
    and_,
    eq,
    floordiv,
    fmax,
    fmin,
    ge,
    gt,
    invert,
    le,
    lt,
    mod,
    mul,
    ne,
    needs,
    neg,
    or_,
    pos,
    pow,
    sub,
    swapped,
    truediv,
    xor,
)
from .tracing import Traced


def _logical(operate: Callable[..., Traced]) -> Callable[..., Traced]:
    """Make a logical function: NumPy's and PyTorch's take any value but zero for true; &, | and ~ work on its bits."""

    def of_truth(*values: Any) -> Traced:
        t = needs(*values)
        lifted = (t.lift(value, "an operand") for value in values)
        return operate(*(value if value.type == "i1" else ne(value, 0) for value in lifted))

    return of_truth


# Names of the same functions in other libraries.
_FOREIGN: dict[str, Callable[..., Any]] = {
    **BINARY,
    **{f"r{name}": swapped(operate) for name, operate in BINARY.items()},
    **COMPARISONS,
    **UNARY,
    "subtract": sub,
    "multiply": mul,
    "divide": truediv,
    "div": truediv,
    "true_divide": truediv,
    "rdiv": swapped(truediv),
    "rsub": swapped(sub),
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
    "logical_and": _logical(and_),
    "logical_or": _logical(or_),
    "logical_xor": _logical(xor),
    "logical_not": _logical(invert),
    "less": lt,
    "less_equal": le,
    "greater": gt,
    "greater_equal": ge,
    "equal": eq,
    "not_equal": ne,
    "fmin": fmin,
    "fmax": fmax,
}


def foreign(shown: str, name: str, args: Any, options: dict[str, Any]) -> Any:
    """Apply a function of NumPy or PyTorch that was called on a traced value. SpecError for an unsupported one."""

    name = name.strip("_")
    if name == "getitem":
        needs(*(args[1] if isinstance(args[1], tuple) else args[1:])).refuse_index()
    operate = _FOREIGN.get(name) or (getattr(functions, name) if name in functions.__all__ else None)
    if operate is None:
        raise SpecError(
            f"score: {shown} is not supported in score functions; there are Python's operators and attn.math."
            + ", ".join(functions.__all__)
        )
    try:
        return operate(*args, **options)
    except TypeError as error:
        raise SpecError(f"score: {shown}: {error}") from None


def _of_ufunc(self: Traced, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    name = ufunc.__name__ if method == "__call__" else method
    return foreign(f"numpy.{ufunc.__name__}", name, inputs, options)


def _of_numpy(self: Traced, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return foreign(f"numpy.{function.__name__}", function.__name__, args, kwargs)


def _of_torch(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return foreign(f"torch.{function.__name__}", function.__name__, args, kwargs or {})


def install() -> None:
    """Give the stand-ins the functions of NumPy and PyTorch, by the protocols of these."""
    Traced.__array_ufunc__ = _of_ufunc
    Traced.__array_function__ = _of_numpy
    Traced.__torch_function__ = classmethod(_of_torch)
