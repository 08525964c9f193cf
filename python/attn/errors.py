# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exceptions of attn. Every message names the argument, the value that was given, and the legal values."""

from __future__ import annotations

import difflib
import numbers
import types
from collections.abc import Iterable


class Error(Exception):
    """The base class of all exceptions that attn raises on purpose."""


class SpecError(Error, ValueError):
    """A description is contradictory, or no kernel exists for it. Raised when the description is made."""


class TensorError(Error, ValueError):
    """A tensor has another shape, dtype, device or strides than the kernel reads."""


class PlanError(Error, ValueError):
    """A batch cannot be planned: its lengths, tables, positions or rows contradict each other."""


class OutOfPages(PlanError):
    """A cache has fewer free pages than were asked for. Nothing was changed."""


class CompileError(Error):
    """The compiler refused a description; the message is the compiler's."""


class CacheMiss(Error):
    """A kernel would have to be compiled, and compiling is forbidden."""


class DeviceError(Error, RuntimeError):
    """A device is missing or failed; the message has the driver's words and the operation that failed."""


class GroupError(Error, RuntimeError):
    """Ranks of a process group disagree, or one of them failed; the message names the rank."""


class CheckError(Error, AssertionError):
    """A result differs from the reference by more than the tolerance, or the host device found a fault."""


class Uncopied:
    """Base of objects that own memory or pages of a device. copy.copy, copy.deepcopy and pickle raise a TypeError that
    says what to do instead: Python's own error names a member, and a shallow copy would share state that changes."""

    _instead: str

    def __reduce_ex__(self, protocol: object) -> tuple:
        raise TypeError(f"attn's {type(self).__name__} cannot be copied or pickled: {self._instead}")


def given(value: object) -> str:
    """Return how a message shows a value: short, with its type if the value alone could mislead. A tensor is shown by
    dtype and shape, a function by its name."""
    text = _text(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return (
        text
        if value is None or isinstance(value, (bool, int, float, str))
        else f"{type(value).__name__} {text}"
    )


def _text(value: object) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not isinstance(value, type) and dtype is not None and shape:
        return f"{str(dtype).removeprefix('torch.')} [{', '.join(map(str, shape))}]"
    if type(value) in (list, tuple):
        begin, end = "[]" if type(value) is list else "()"
        return begin + ", ".join(map(_text, value[:16])) + (", ..." if len(value) > 16 else "") + end
    if type(value) is dict:
        items = list(value.items())
        return "{" + ", ".join(f"{key!r}: {_text(each)}" for key, each in items[:16]) + "}"
    if isinstance(value, types.FunctionType):
        return value.__name__
    try:
        return repr(value)
    except Exception as error:  # The caller's class may raise anything.
        return f"whose repr raises {type(error).__name__}"


def expected(
    kind: type[Error], argument: str, legal: str, value: object, *, nearest: object = None, hint: str = ""
) -> Error:
    """Make the error of a refused argument: `argument: expected LEGAL, got VALUE; nearest legal: NEAREST. HINT`.
    `nearest` is left out when it is far from the value (`is_near`)."""
    text = f"{argument}: expected {legal}, got {given(value)}"
    if nearest is not None and is_near(value, nearest):
        text += f"; nearest legal: {nearest if isinstance(nearest, str) else repr(nearest)}"
    return kind(f"{text}. {hint}" if hint else text)


def is_near(value: object, legal: object) -> bool:
    """Whether the caller may have meant a legal value, so that a message names it: a word spelt alike, or a number of
    the same magnitude. Any other value has code for its nearest value, which is always shown."""
    if isinstance(legal, _Near):
        return True
    if isinstance(value, bool) or value is None:
        return isinstance(value, bool) and isinstance(legal, bool)
    if isinstance(value, str):
        return isinstance(legal, str) and _likeness(value, legal.strip("'")) >= _ALIKE
    if isinstance(value, numbers.Real) and isinstance(legal, numbers.Real):
        return bool(abs(value - legal) <= max(16, 3 * min(abs(value), abs(legal))))
    return True


def closest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt one most likely stands for, quoted for a message; two words if both are
    equally near. None if no word is near, or more than two are."""
    likely = sorted(((_likeness(str(word), each), each) for each in dict.fromkeys(known)), reverse=True)
    nearest = sorted(each for likeness, each in likely if likeness == likely[0][0] >= _ALIKE)
    return _Near(" or ".join(map(repr, nearest))) if 1 <= len(nearest) <= 2 else None


class _Near(str):
    """A result of `closest`, which needs no further check."""


_ALIKE = 0.6


def _likeness(word: str, known: str) -> float:
    """Return the likeness of two words, from 0 to 1. If one word contains the other, and both have three letters or
    more, it is at least _ALIKE."""
    one, other = word.lower(), known.lower()
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return max(_ALIKE, difflib.SequenceMatcher(None, one, other).ratio())
    return difflib.SequenceMatcher(None, one, other).ratio()
