# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score functions: Python, run once on stand-ins, written down as scalar code.

    def alibi(s, h, qi, ki, slopes):                 # score, query head, positions of query and key; tensors by name
        return s + slopes[h] * (ki - qi)

`trace` calls the function with stand-ins (`tracing.py`). Every operator on a stand-in appends an instruction to a
program, and what is returned is the program's result: the function itself never runs per element. So a number that
the function closes over is a constant of the kernel, and `if` on a stand-in cannot mean anything: it is refused with
what to write instead.

A function is traced each time it is given: what it closes over, or reads from an object, may have changed. That takes
some tens of microseconds; a Score can be kept and given in the function's place.

A program is data: equal programs are equal, whatever functions they came from. It is what a score region may hold
(lib/Dialect/Attn/IR/Score.cpp), in f32, i32 (which wraps) and i1.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import SpecError, expected, given
from ..forks import cached_property
from ..memory.dtypes import DTYPES, no_floats, short_name
from . import checks, foreign, operators
from .tracing import ARGUMENTS, Absent, Instruction, Table, Traced, Tracer

Shape = tuple  # Extents are ints, or names of dynamic dimensions.


@dataclass(frozen=True)
class Score:
    """A traced score function: instructions after the four arguments, the index of the result, and the tensors that it
    reads.

    Values are numbered: 0 to 3 are the arguments, 4 + i is the result of instruction i.
    """

    instructions: tuple[Instruction, ...]
    result: int
    reads: tuple[str, ...]
    approximate: bool  # Whether it uses the hardware's tanh, with its larger error.

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.instructions, self.result))

    def uses(self, argument: str) -> bool:
        """Whether the result depends on s, h, qi or ki."""
        index = ARGUMENTS.index(argument)
        return self.result == index or any(index in instruction.operands for instruction in self.instructions)

    @cached_property
    def is_relative(self) -> bool:
        """Whether scores depend on distances alone: positions that all change by the same amount give the same."""
        at = {ARGUMENTS.index("qi"), ARGUMENTS.index("ki")}
        compared = ("arith.subi", "arith.cmpi")
        return self.result not in at and all(
            not at & set(each.operands) or (each.op in compared and at == set(each.operands))
            for each in self.instructions
        )

    def __repr__(self) -> str:
        return f"<score of {len(self.instructions)} instructions>"


def tensor_shapes(
    tensors: Mapping[str, object] | None, taken: tuple[str, ...]
) -> tuple[tuple[str, Shape], ...]:
    """Return (name, shape) of the tensors that a score function reads; of arrays the shape is taken, not the values.
    SpecError."""
    if tensors is None:
        return ()
    if isinstance(tensors, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in tensors):
        tensors = dict(tensors)  # A Spec keeps them so.
    if not isinstance(tensors, Mapping):
        raise expected(SpecError, "tensors", "a dict of names and shapes, as in {'slopes': (32,)}", tensors)
    shapes = []
    for name, each in tensors.items():
        checks.name(f"tensors[{name!r}]", name, taken)
        shape = getattr(each, "shape", each)
        if (dtype := short_name(getattr(each, "dtype", None))) and no_floats(dtype):
            raise SpecError(f"tensors[{name!r}]: expected float32, got {DTYPES[dtype][0]}{no_floats(dtype)}")
        if not isinstance(shape, (tuple, list)) or not 1 <= len(shape) <= 8:
            legal = "a shape of 1 to 8 extents, or an array that has one"
            raise expected(SpecError, f"tensors[{name!r}]", legal, each)
        extents = []
        for extent in shape:
            if isinstance(extent, str):
                extents.append(checks.name(f"tensors[{name!r}]", extent))
            else:
                extents.append(checks.integer(f"tensors[{name!r}]", extent, 1, checks.MAX_EXTENT))
        shapes.append((name, tuple(extents)))
    return tuple(shapes)


operators.install()
foreign.install()

# Names of the batch index in FlexAttention's functions.
_BATCH = re.compile(r"_*(b|bs|bsz|z|batch)(_?(idx|index|id|size))?_*")


def trace(function: object, tensors: tuple[tuple[str, Shape], ...] = ()) -> Score:
    """Trace a score function, whose arguments are the score, the query head, the positions of query and key, and the
    tensors by name. A function of FlexAttention, (score, b, h, q_idx, kv_idx), is taken if it does not use b.

    Raises SpecError if the function does something that has no meaning in a kernel. Exceptions of the function itself
    are passed on.
    """
    if isinstance(function, Score):
        missing = set(function.reads) - {name for name, _ in tensors}
        if missing:
            raise expected(
                SpecError, "tensors", f"the shape of {sorted(missing)[0]!r}, which the score reads", tensors
            )
        return function
    if not callable(function):
        legal = "a function of the score, the query head and the positions of query and key"
        raise expected(SpecError, "score", legal, function, hint="As in lambda s, h, qi, ki: s * 0.5")
    tracer = Tracer()
    tables = {name: Table(tracer, name, shape) for name, shape in tensors}
    returned = _call(function, tracer, tables)
    if returned is None:
        raise SpecError("score: expected the new score to be returned, got None. Did you forget `return`?")
    result = tracer.as_float(returned, "what score returns")
    if result.constant is not None and not result.constant < float("inf"):
        raise expected(SpecError, "score", "a finite score or -inf", result.constant)
    return _finish(tracer, result)


def _call(function: Callable, tracer: Tracer, tables: dict[str, Table]) -> object:
    arguments: tuple = tracer.arguments
    if isinstance(function, types.FunctionType):  # Such a function reports other arguments by itself.
        with contextlib.suppress(TypeError):
            return _refusing(function, arguments, tracer, tables)
    arguments = _matching(function, tracer, tables)
    return _refusing(function, arguments, tracer, tables)


def _refusing(function: Callable, arguments: tuple, tracer: Tracer, tables: dict[str, Table]) -> object:
    """Call the function. A library's own error about a refusal says less than the refusal, which is raised instead."""
    try:
        return function(*arguments, **tables)
    except Exception as error:
        if tracer.refusal and not isinstance(error, SpecError):
            raise tracer.refusal from error
        raise


def _matching(function: Callable, tracer: Tracer, tables: dict[str, Table]) -> tuple:
    """Return the arguments that the function takes beside its tables. SpecError if it takes others."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise expected(SpecError, "score", "a function written in Python", function) from None
    score, *rest = tracer.arguments
    with_batch = (score, Absent(tracer), *rest)
    fits = _fault(signature, with_batch, tables) is None
    batch = fits and _BATCH.fullmatch(list(signature.parameters)[min(1, len(signature.parameters) - 1)])
    fault = _fault(signature, tracer.arguments, tables)
    if fault is None:
        return tracer.arguments
    if batch:
        return with_batch
    takes = ", ".join(("s", "h", "qi", "ki", *tables))
    hint = "Tensors that it reads are arguments by name, and their shapes are given in tensors={...}"
    if fits:
        hint += ". Of five arguments the second is the batch index if it is called b or batch"
    raise SpecError(
        f"score: expected a function that can be called as score({takes}), got {given(function)} "
        f"with the signature {signature}: {fault}. {hint}"
    )


def _fault(signature: inspect.Signature, arguments: tuple, tables: dict[str, Table]) -> TypeError | None:
    try:
        signature.bind(*arguments, **tables)
    except TypeError as error:
        return error
    return None


def _finish(tracer: Tracer, result: Traced) -> Score:
    """Keep the instructions that the result needs, in their order."""
    first = len(ARGUMENTS)
    needed, stack = set(), [result.index]
    while stack:
        index = stack.pop()
        if index >= first and index not in needed:
            needed.add(index)
            stack += tracer.instructions[index - first].operands
    number = {index: index for index in range(first)}
    kept = []
    for index in sorted(needed):
        number[index] = first + len(kept)
        kept.append(tracer.instructions[index - first].renumbered(number))
    reads = dict.fromkeys(i.detail for i in kept if i.op == "attn.read")
    approximate = any(i.op == "math.tanh" and i.detail for i in kept)
    return Score(tuple(kept), number[result.index], tuple(reads), approximate)
