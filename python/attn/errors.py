# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn raises. Every message names the argument, what was given and what is legal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Error(Exception):
    """The base of everything that attn raises on purpose."""


class SpecError(Error, ValueError):
    """A description that means nothing, or that no kernel exists for. Raised when it is written down."""


class TensorError(Error, ValueError):
    """A tensor whose shape, dtype, device or strides are not what the kernel reads."""


class PlanError(Error, ValueError):
    """A batch that cannot be planned: lengths, tables, positions or rows that contradict each other."""


class OutOfPages(PlanError):
    """A cache that has fewer free pages than were asked for. Nothing was changed."""


class CompileError(Error):
    """A description that the compiler refused, in the compiler's words."""


class CacheMiss(Error):
    """A kernel that would have to be compiled where compiling is forbidden."""


class DeviceError(Error, RuntimeError):
    """A device that is missing or failed, with the driver's words and what was being done."""


class CheckError(Error, AssertionError):
    """A result that is not the reference's within tolerance, or a fault that the host device found."""


def given(value: object) -> str:
    """How a message shows what was given: short, with its type where the value alone could mislead."""
    text = repr(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return (
        text
        if value is None or isinstance(value, (bool, int, float, str))
        else f"{type(value).__name__} {text}"
    )


def expected(
    kind: type[Error], argument: str, legal: str, value: object, *, nearest: object = None, hint: str = ""
) -> Error:
    """The error that every validation raises: `argument: expected LEGAL, got VALUE; nearest legal: NEAREST`."""
    text = f"{argument}: expected {legal}, got {given(value)}"
    if nearest is not None:
        text += f"; nearest legal: {nearest if isinstance(nearest, str) else repr(nearest)}"
    return kind(f"{text}. {hint}" if hint else text)


def closest(word: object, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one most likely stands for, quoted for a message."""
    found = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.4)
    return repr(found[0]) if found else None
