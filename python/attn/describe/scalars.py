# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces functions of numbers, as score functions are traced (score.py): a kernel runs a cache's decision for each
token list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import SpecError
from . import score  # noqa: F401  (gives stand-ins their operators)
from .tracing import INT32, Instruction, Tracer


@dataclass(frozen=True)
class Program:
    """Arguments by their types, the instructions after them, and the indices of the results, as in a Score."""

    arguments: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]


def trace_scalars(
    function: Callable[..., Sequence[object]], arguments: Sequence[tuple[str, str]], results: str, what: str
) -> Program:
    """Trace a function of `arguments`, (name, type) each, that returns a list of numbers (`results` "f32") or of truth
    values ("i1"). SpecError, which begins with `what`, for operations that have no meaning in a kernel."""
    tracer = Tracer(tuple((name, kind, INT32) for name, kind in arguments))
    try:
        given = function(*tracer.arguments)
        lift = tracer.as_float if results == "f32" else tracer.as_truth
        found = [lift(value, f"result {number}") for number, value in enumerate(given)]
    except Exception as error:
        refusal = tracer.refusal if tracer.refusal and not isinstance(error, SpecError) else error
        if not isinstance(refusal, SpecError):
            raise
        words = str(refusal).replace("score:", f"{what}:", 1).replace("a score function", "it")
        raise SpecError(words) from None
    return Program(
        tuple(kind for _, kind in arguments),
        tuple(tracer.instructions),
        tuple(value.index for value in found),
    )
