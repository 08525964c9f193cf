"""Stand-ins that write down what is done to them.

A `Traced` is a value of a program that is being written; its operators (`operators.py`) append instructions to the
`Tracer`. Equal instructions are written once. Numbers become constants, i32 becomes f32 where it meets one, and i1
becomes i32 or f32.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .errors import SpecError, given

ARGUMENTS = ("s", "h", "qi", "ki")
_INSTEAD = (
    "while a score function is traced. Instead of `if` use attn.math.where(condition, a, b), of `and`, `or`, `not` "
    "use &, |, ~, of min and max attn.math.minimum and attn.math.maximum, of chained comparisons two joined by &"
)


@dataclass(frozen=True)
class Instruction:
    """`op` with MLIR's name; `type` of its result; `detail`: a constant's value, a comparison, a tensor, a flag."""

    op: str
    type: str
    operands: tuple[int, ...] = ()
    detail: Any = None

    def renumbered(self, number: Mapping[int, int]) -> Instruction:
        return replace(self, operands=tuple(number[index] for index in self.operands))


def as_f32(value: float) -> float:
    """Rounded to f32, infinite where it is too large."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class Tracer:
    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._known: dict[object, Traced] = {}
        self.refusal: SpecError | None = None
        types = ("f32", "i32", "i32", "i32")
        self.arguments = tuple(Traced(self, i, kind, natural=i > 0) for i, kind in enumerate(types))

    def write(
        self, op: str, kind: str, *operands: Traced, detail: Any = None, natural: bool = False
    ) -> Traced:
        instruction = Instruction(op, kind, tuple(operand.index for operand in operands), detail)
        key = (op, kind, instruction.operands, repr(detail))  # repr: 0.0 and -0.0 are two constants
        if key not in self._known:
            self.instructions.append(instruction)
            index = len(ARGUMENTS) + len(self.instructions) - 1
            self._known[key] = Traced(self, index, kind, natural=natural)
        return self._known[key]

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
        result = self.write("arith.constant", kind, detail=value, natural=kind != "f32" and value >= 0)
        result.constant = value
        return result

    def refuse_index(self) -> NoReturn:
        self.arguments[0].__index__()

    def lift(self, value: Any, what: str) -> Traced:
        """A value of this program, from one or from a number."""
        if isinstance(value, Traced):
            if value.tracer is not self:
                raise SpecError(f"score: {what} belongs to another tracing: it was kept from an earlier call")
            return value
        if isinstance(value, Table):
            raise value.refusal()
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        shape = None if isinstance(value, type) else getattr(value, "shape", None)
        if shape == () and hasattr(value, "item"):  # of NumPy and PyTorch
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
        return self.write("arith.extui", "i32", value, detail="i1", natural=True)

    def as_truth(self, value: Any, what: str = "a condition") -> Traced:
        value = self.lift(value, what)
        if value.type != "i1":
            raise SpecError(f"score: {what} is no truth value, expected a comparison, as in qi - ki < 128")
        return value

    def alike(self, a: Any, b: Any, floats: bool = False) -> tuple[Traced, Traced]:
        """Both in the wider of their types; `floats`: in f32 in any case."""
        a, b = self.lift(a, "an operand"), self.lift(b, "an operand")
        if floats or "f32" in (a.type, b.type):
            return self.as_float(a), self.as_float(b)
        return self.as_int(a), self.as_int(b)


def refuse(what: str, decisive: bool = False) -> Any:
    """A method that refuses. Libraries try several, and raise something of their own in the end, which says less: the
    tracer remembers the first refusal, or the decisive one."""

    def method(self: Traced, *_: Any) -> NoReturn:
        error = SpecError(f"score: {what}")
        if decisive or not self.tracer.refusal:
            self.tracer.refusal = error
        raise error

    return method


class Traced:
    """A value of the program. `natural`: an integer that is never negative; `constant`: its value, where known."""

    __slots__ = ("constant", "index", "natural", "tracer", "type")
    __array_priority__ = 1000  # NumPy scalars leave operators to us

    def __init__(self, tracer: Tracer, index: int, kind: str, natural: bool = False) -> None:
        self.tracer, self.index, self.type, self.natural = tracer, index, kind, natural
        self.constant: bool | int | float | None = None

    def __repr__(self) -> str:
        name = ARGUMENTS[self.index] if self.index < len(ARGUMENTS) else f"v{self.index}"
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

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from .operators import foreign

        return foreign(
            f"numpy.{ufunc.__name__}", ufunc.__name__ if method == "__call__" else method, inputs, options
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .operators import foreign

        return foreign(f"numpy.{function.__name__}", function.__name__, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from .operators import foreign

        return foreign(f"torch.{function.__name__}", function.__name__, args, kwargs or {})


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
