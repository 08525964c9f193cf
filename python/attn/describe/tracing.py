# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins that record the operations on them.

A `Traced` is a value of a program in the making. Its operators (`operators.py`; `foreign.py` has those of NumPy and
PyTorch; `score.py` installs both) append instructions to the `Tracer`. Equal instructions are written once. Numbers
become constants; i32 becomes f32 beside an f32, and i1 becomes i32 or f32.

Integers have 32 bits and wrap, as NumPy's and PyTorch's int32 do. Each carries the interval of its possible values, so
that rounding down costs nothing if nothing is negative; a value that may wrap may be anything.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..errors import SpecError, given
from .checks import MAX_HEADS

Span = tuple[int, int]
INT32 = (-(2**31), 2**31 - 1)
# A query's position is any number of a batch, -1 too; a key's is checked when it is planned (CheckBatch.cpp).
Argument = tuple[str, str, Span]  # An argument's name, its type, and the interval of an integer.
SCORE: tuple[Argument, ...] = (
    ("s", "f32", INT32),
    ("h", "i32", (0, MAX_HEADS - 1)),
    ("qi", "i32", INT32),
    ("ki", "i32", (0, INT32[1])),
)
ARGUMENTS = tuple(name for name, _, _ in SCORE)
_INSTEAD = (
    "while a score function is traced. Instead of `if` use attn.math.where(condition, a, b), of `and`, `or`, `not` "
    "use &, |, ~, of min and max attn.math.minimum and attn.math.maximum, of chained comparisons two joined by &"
)

_NO_BATCH = (
    "score: the batch index was used, the second of five arguments, which a kernel does not know; expected a function "
    "of score, head and positions. What differs between sequences can be said by kv_lengths, cu_seqlens or a table "
    "that positions index; else call once for each sequence"
)


@dataclass(frozen=True)
class Instruction:
    """`op`: MLIR's name; `type`: of its result; `detail`: a constant's value, a comparison, a tensor, a flag."""

    op: str
    type: str
    operands: tuple[int, ...] = ()
    detail: Any = None

    def __eq__(self, other: object) -> bool:
        # By repr: 0.0 and -0.0 are two constants, and programs that differ in them are two.
        return (
            isinstance(other, Instruction)
            and (self.op, self.type, self.operands) == (other.op, other.type, other.operands)
            and repr(self.detail) == repr(other.detail)
        )

    def __hash__(self) -> int:
        return hash((self.op, self.type, self.operands, self.detail))

    def renumbered(self, number: Mapping[int, int]) -> Instruction:
        operands = tuple([number[index] for index in self.operands])
        return self if operands == self.operands else replace(self, operands=operands)


def as_f32(value: float) -> float:
    """Round to f32; infinite if it is too large."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def unless_wrapped(low: int, high: int) -> Span:
    """Return the interval, or all of i32 if its ends show that the value may wrap."""
    return (low, high) if INT32[0] <= low and high <= INT32[1] else INT32


class Tracer:
    """Records a program. `arguments`: those of the traced function, by default a score function's."""

    def __init__(self, arguments: tuple[Argument, ...] = SCORE) -> None:
        self.instructions: list[Instruction] = []
        self._known: dict[Instruction, Traced] = {}
        self.refusal: SpecError | None = None
        self.names = tuple(name for name, _, _ in arguments)
        self.arguments = tuple(Traced(self, i, kind, span) for i, (_, kind, span) in enumerate(arguments))
        self.values = list(self.arguments)

    def write(self, op: str, kind: str, *operands: Traced, detail: Any = None, span: Span = INT32) -> Traced:
        instruction = Instruction(op, kind, tuple(operand.index for operand in operands), detail)
        if instruction not in self._known:
            self.instructions.append(instruction)
            self._known[instruction] = Traced(self, len(self.values), kind, span)
            self.values.append(self._known[instruction])
        return self._known[instruction]

    def constant(self, value: bool | int | float) -> Traced:
        if isinstance(value, bool):
            kind = "i1"
        elif isinstance(value, int):
            kind = "i32"
            if not -(2**31) <= value < 2**31:
                raise SpecError(f"score: expected integers of 32 bits, got {value}")
        else:
            kind, value = "f32", as_f32(value)
            if value != value:
                raise SpecError("score: expected constants that are numbers, got nan")
        span = INT32 if kind == "f32" else (int(value), int(value))
        result = self.write("arith.constant", kind, detail=value, span=span)
        result.constant = value
        return result

    def instruction(self, value: Traced) -> Instruction | None:
        """Return the instruction that computes a value; None for an argument."""
        first = len(self.arguments)
        return self.instructions[value.index - first] if value.index >= first else None

    def refuse_index(self) -> NoReturn:
        self.arguments[0].__index__()

    def lift(self, value: Any, what: str) -> Traced:
        """Return a value of this program, from a value or a number. SpecError for anything else."""
        if isinstance(value, Traced):
            if value.tracer is not self:
                raise SpecError(f"score: {what} belongs to another tracing: it was kept from an earlier call")
            return value
        if isinstance(value, (Table, Absent)):
            raise value.refusal()
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        shape = None if isinstance(value, type) else getattr(value, "shape", None)
        if shape == () and hasattr(value, "item"):  # A scalar of NumPy or PyTorch.
            return self.lift(value.item(), what)
        if shape is not None:
            raise SpecError(
                f"score: {what} is an array of shape {tuple(shape) if isinstance(shape, tuple) else shape}: expected a number. An array is read by an "
                "index, and given by name: an argument of the function, and tensors={'name': shape}"
            )
        raise SpecError(f"score: {what}: expected a number or a traced value, got {given(value)}")

    def as_float(self, value: Any, what: str = "an operand") -> Traced:
        value = self.lift(value, what)
        if value.type == "f32":
            return value
        if value.constant is not None:
            return self.constant(float(value.constant))
        return self.write(
            "arith.sitofp" if value.type == "i32" else "arith.uitofp", "f32", value, detail=value.type
        )

    def as_int(self, value: Any, what: str = "an operand") -> Traced:
        value = self.lift(value, what)
        if value.type == "f32":
            raise SpecError(
                f"score: {what} is a float, expected an integer; attn.math.to_int rounds towards zero"
            )
        if value.type == "i32":
            return value
        if value.constant is not None:
            return self.constant(int(value.constant))
        return self.write("arith.extui", "i32", value, detail="i1", span=(0, 1))

    def as_truth(self, value: Any, what: str = "a condition") -> Traced:
        value = self.lift(value, what)
        if value.type != "i1":
            raise SpecError(f"score: {what} is no truth value, expected a comparison, as in qi - ki < 128")
        return value

    def alike(self, a: Any, b: Any, floats: bool = False) -> tuple[Traced, Traced]:
        """Return both in the wider of their types; `floats`: always in f32."""
        a, b = self.lift(a, "an operand"), self.lift(b, "an operand")
        if floats or "f32" in (a.type, b.type):
            return self.as_float(a), self.as_float(b)
        return self.as_int(a), self.as_int(b)


def refuse(what: str, decisive: bool = False) -> Any:
    """Make a method that refuses. Libraries try several methods, and then raise an error of their own, which says less:
    the tracer remembers the first refusal, or the decisive one."""

    def method(self: Traced, *_: Any) -> NoReturn:
        error = SpecError(f"score: {what}")
        if decisive or not self.tracer.refusal:
            self.tracer.refusal = error
        raise error

    return method


class Traced:
    """A value of the program. `span`: the interval of an integer; `constant`: its value, if known."""

    __slots__ = ("constant", "index", "span", "tracer", "type")
    __array_priority__ = 1000  # NumPy scalars leave operators to this class.

    def __init__(self, tracer: Tracer, index: int, kind: str, span: Span = INT32) -> None:
        self.tracer, self.index, self.type, self.span = tracer, index, kind, span
        self.constant: bool | int | float | None = None

    @property
    def natural(self) -> bool:
        """Whether the value is never negative."""
        return self.span[0] >= 0

    def __repr__(self) -> str:
        names = self.tracer.names
        name = names[self.index] if self.index < len(names) else f"v{self.index}"
        return f"<traced {name}: {self.type}>"

    __hash__ = None  # type: ignore[assignment]
    __bool__ = refuse(f"a traced value is neither true nor false {_INSTEAD}")
    __float__ = refuse(
        "a traced value is no Python float; use the functions of attn.math instead of those of math"
    )
    __int__ = refuse(
        "a traced value is no Python int; attn.math.to_int rounds towards zero, // divides integers"
    )
    __index__ = refuse(
        "a traced value indexes only tensors that are given by name: make it an argument of the score function, "
        "and give its shape in tensors={'name': shape}",
        decisive=True,
    )
    __iter__ = refuse("a traced value is one number, it cannot be unpacked or iterated")
    __len__ = refuse("a traced value is one number, it has no length")
    __getitem__ = refuse("a traced value is one number, it has no elements")
    __round__ = __floor__ = __ceil__ = __trunc__ = refuse(
        "rounding is not supported but by attn.math.to_int and //"
    )
    __matmul__ = __rmatmul__ = refuse("matrix products are not supported in score functions")


class Absent:
    """The batch index, which FlexAttention's functions have and kernels do not: rows of all sequences are packed."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def refusal(self) -> SpecError:
        return SpecError(_NO_BATCH)

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        self._tracer.refusal = self.refusal()
        raise self._tracer.refusal

    __hash__ = None  # type: ignore[assignment]
    __bool__ = __float__ = __int__ = __index__ = __iter__ = __len__ = __getitem__ = refuse
    __array_ufunc__ = __array_function__ = refuse

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise SpecError(_NO_BATCH)


class Table:
    """A tensor that a score function reads by indices."""

    __slots__ = ("_indices", "_name", "_tracer", "shape")

    def __init__(self, tracer: Tracer, name: str, shape: tuple, indices: tuple[Traced, ...] = ()) -> None:
        self._tracer, self._name, self.shape, self._indices = tracer, name, shape, indices

    def __repr__(self) -> str:
        return f"<tensor {self._name}{list(self.shape)}>"

    def example(self) -> str:
        return f"{self._name}[{', '.join(('h', 'qi', 'ki')[: len(self.shape)])}]"

    def refusal(self) -> SpecError:
        return SpecError(f"score: expected an element of {self!r}, as in {self.example()}, got the tensor")

    def __getitem__(self, index: Any) -> Any:
        indices = list(self._indices)
        for i in index if isinstance(index, tuple) else (index,):
            axis = len(indices)
            where = f"index {axis} of {self._name}"
            if axis == len(self.shape):
                raise SpecError(
                    f"score: expected {axis} indices, got more, of {self!r}, as in {self.example()}"
                )
            if isinstance(i, slice) or i is None or i is Ellipsis:
                raise SpecError(f"score: {where}: expected an integer, got {given(i)}: no slices")
            i = self._tracer.as_int(i, where)
            extent = self.shape[axis]
            if i.constant is not None and (
                i.constant < 0 or (isinstance(extent, int) and i.constant >= extent)
            ):
                last = extent - 1 if isinstance(extent, int) else f"{extent} - 1"
                raise SpecError(f"score: {where}: expected an integer from 0 to {last}, got {i.constant}")
            indices.append(i)
        if len(indices) < len(self.shape):
            return Table(self._tracer, self._name, self.shape, tuple(indices))
        return self._tracer.write("attn.read", "f32", *indices, detail=self._name)

    def __bool__(self) -> NoReturn:
        raise SpecError(f"score: {self!r} is neither true nor false")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise SpecError(
            f"score: {self!r} has no values while a score function is traced; read an element of it"
        )
