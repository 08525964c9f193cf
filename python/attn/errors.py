# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn raises. Every message names the argument, what was given and what is legal."""

from __future__ import annotations

import difflib
import numbers
import types
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


class Uncopied:
    """An object that owns memory or pages of a device. It refuses copy.copy, copy.deepcopy and pickle with a TypeError
    that says what to do instead: Python's own error names a member, and a shallow copy would share state that changes."""

    _instead: str

    def __reduce_ex__(self, protocol: object) -> tuple:
        raise TypeError(f"attn's {type(self).__name__} cannot be copied or pickled: {self._instead}")


def given(value: object) -> str:
    """How a message shows what was given: short, with its type where the value alone could mislead. A tensor is shown by
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
    except Exception as error:  # of the caller's class
        return f"whose repr raises {type(error).__name__}"


def expected(
    kind: type[Error], argument: str, legal: str, value: object, *, nearest: object = None, hint: str = ""
) -> Error:
    """The error that every validation raises: `argument: expected LEGAL, got VALUE; nearest legal: NEAREST`, the end only
    where it is near."""
    text = f"{argument}: expected {legal}, got {given(value)}"
    if nearest is not None and is_near(value, nearest):
        text += f"; nearest legal: {nearest if isinstance(nearest, str) else repr(nearest)}"
    return kind(f"{text}. {hint}" if hint else text)


def is_near(value: object, legal: object) -> bool:
    """Whether a legal value is what the caller may have meant, so that a message names it: a word spelt alike, a number
    of the same magnitude. Whatever is no text and no number has code for its nearest value, which stands by itself."""
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
    """The known word that a misspelt one most likely stands for, quoted for a message; two, where both are as near. None
    where none is near, or many."""
    likely = sorted(((_likeness(str(word), each), each) for each in dict.fromkeys(known)), reverse=True)
    nearest = sorted(each for likeness, each in likely if likeness == likely[0][0] >= _ALIKE)
    return _Near(" or ".join(map(repr, nearest))) if 1 <= len(nearest) <= 2 else None


class _Near(str):
    """What `closest` found."""


_ALIKE = 0.6


def _likeness(word: str, known: str) -> float:
    """From 0 to 1. A word of three letters or more that begins, ends or stands in the other is like it."""
    one, other = word.lower(), known.lower()
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return max(_ALIKE, difflib.SequenceMatcher(None, one, other).ratio())
    return difflib.SequenceMatcher(None, one, other).ratio()
