# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who may see a token: intervals of positions, united and intersected.

A row at position q sees the token at position k when

    all_tokens()               always
    causal()                   k <= q
    window(n), recent(n)       0 <= q - k < n
    sink(n)                    k < n
    a | b                      either does
    a & b                      both do

No mask is built. The form is compiled; the sizes are numbers of a run: another size recompiles nothing.
(Source: include/attn/Dialect/Attn/IR/AttnVisibility.td, where the essay is.)
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError, closest, expected

_PLAIN = ("all", "causal")
_SIZED = ("window", "recent", "sink")
MAX_SIZE = 2**31 - 1
MAX_DEPTH = 32  # of nested parentheses: what the parser of the text takes


@dataclass(frozen=True)
class Visibility:
    """A set of pairs of positions. Made by `all_tokens`, `causal`, `window`, `recent`, `sink`, `|` and `&`."""

    kind: str
    size: int = 0
    parts: tuple[Visibility, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (*_PLAIN, *_SIZED, "and", "or"):
            raise expected(
                SpecError,
                "Visibility(kind)",
                ", ".join((*_PLAIN, *_SIZED)) + ", and or or",
                self.kind,
                nearest=closest(self.kind, (*_PLAIN, *_SIZED)),
                hint="Visibilities are made by attn.causal(), attn.window(n) and so on, combined with & and |",
            )
        if self.kind in _SIZED:
            object.__setattr__(self, "size", _size(self.kind, self.size))
        elif self.size:
            raise expected(SpecError, f"Visibility({self.kind!r}, size)", "none", self.size)
        if (self.kind in ("and", "or")) != bool(self.parts) or not all(
            isinstance(part, Visibility) for part in self.parts
        ):
            raise expected(
                SpecError, f"Visibility({self.kind!r}, parts)", "visibilities for and, or", self.parts
            )
        if self._depth() > MAX_DEPTH:
            raise SpecError(f"see: expected at most {MAX_DEPTH} unions nested in intersections, got more")

    def __or__(self, other: object) -> Visibility:
        return _join("or", self, other, "|")

    def __ror__(self, other: object) -> Visibility:
        return _join("or", other, self, "|")

    def __and__(self, other: object) -> Visibility:
        return _join("and", self, other, "&")

    def __rand__(self, other: object) -> Visibility:
        return _join("and", other, self, "&")

    def __bool__(self) -> bool:
        raise SpecError(
            f"{self!r} is neither true nor false; combine visibilities with & and |, not with `and`, `or`, `not`"
        )

    def sees(self, q: Any, k: Any) -> Any:
        """Whether a row at position `q` sees the token at position `k`: integers, or arrays of them that broadcast."""
        if self.kind == "all":
            return (q == q) & (k == k)
        if self.kind == "causal":
            return k <= q
        if self.kind in ("window", "recent"):
            return (k <= q) & (q - k < self.size)
        if self.kind == "sink":
            return (k < self.size) & (q == q)
        first, *rest = (part.sees(q, k) for part in self.parts)
        for seen in rest:
            first = first | seen if self.kind == "or" else first & seen
        return first

    def is_empty(self) -> bool:
        """Whether nothing is seen, whatever the positions: a size of 0 in the right place."""
        if self.parts:
            empty = [part.is_empty() for part in self.parts]
            return all(empty) if self.kind == "or" else any(empty)
        return self.kind in _SIZED and self.size == 0

    def sizes(self) -> Iterator[int]:
        """Sizes of windows, recents and sinks in the order of the text."""
        if self.kind in _SIZED:
            yield self.size
        for part in self.parts:
            yield from part.sizes()

    def kinds(self) -> Iterator[str]:
        """What is united and intersected: all, causal, window, recent, sink."""
        if not self.parts:
            yield self.kind
        for part in self.parts:
            yield from part.kinds()

    def is_everything(self) -> bool:
        """Whether everything is seen, whatever the positions."""
        if self.parts:
            every = [part.is_everything() for part in self.parts]
            return any(every) if self.kind == "or" else all(every)
        return self.kind == "all"

    def resized(self, sizes: dict[int, int]) -> Visibility:
        """The same form with other sizes."""
        if self.kind in _SIZED:
            return Visibility(self.kind, sizes[self.size])
        return Visibility(self.kind, 0, tuple(part.resized(sizes) for part in self.parts))

    def mlir(self) -> str:
        """The expression as the dialect writes it."""
        return self._text({"all": "all", "causal": "causal"}, " and ")

    def __repr__(self) -> str:
        return self._text({"all": "all_tokens()", "causal": "causal()"}, " & ")

    def _text(self, names: dict[str, str], conjunction: str) -> str:
        if not self.parts:
            return names.get(self.kind) or f"{self.kind}({self.size})"
        texts = []
        for part in self.parts:
            text = part._text(names, conjunction)
            texts.append(f"({text})" if self.kind == "and" and part.kind == "or" else text)
        return (conjunction if self.kind == "and" else " | ").join(texts)

    def _depth(self) -> int:
        deepest = 0
        for part in self.parts:
            depth = part._depth() + (self.kind == "and" and part.kind == "or")
            deepest = max(deepest, depth)
        return deepest


def _join(kind: str, a: object, b: object, sign: str) -> Visibility:
    parts: list[Visibility] = []
    for side in (a, b):
        if not isinstance(side, Visibility):
            raise expected(SpecError, f"an operand of {sign}", "a visibility", side, hint=_uncalled(side))
        parts += side.parts if side.kind == kind else (side,)
    return Visibility(kind, 0, tuple(parts))


def check_visibility(argument: str, see: object) -> Visibility:
    """`see` itself, where it is a visibility."""
    if isinstance(see, Visibility):
        return see
    legal = "a visibility (all_tokens(), causal(), window(n), recent(n), sink(n), combined with | and &)"
    hint = _uncalled(see)
    if not hint and callable(see):
        hint = "A function of positions is no visibility; what intervals cannot say is no mask but a score function"
    raise expected(SpecError, argument, legal, see, hint=hint)


def _uncalled(given: object) -> str:
    """What a message says of a function of this module that was not called."""
    if any(given is function for function in (all_tokens, causal)):
        return f"Did you mean {given.__name__}()?"  # type: ignore[attr-defined]
    if any(given is function for function in (window, recent, sink)):
        return f"Did you mean {given.__name__}(n)?"  # type: ignore[attr-defined]
    return ""


def _size(kind: str, n: object) -> int:
    try:
        size = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        size = -1
    if isinstance(n, bool) or not 0 <= size <= MAX_SIZE:
        nearest = min(max(int(n), 0), MAX_SIZE) if isinstance(n, (int, float)) and abs(n) < 2**64 else None
        raise expected(SpecError, f"{kind}(n)", f"an integer from 0 to {MAX_SIZE}", n, nearest=nearest)
    return size


def all_tokens() -> Visibility:
    """Every row sees every token."""
    return Visibility("all")


def causal() -> Visibility:
    """A row sees the tokens up to its own position."""
    return Visibility("causal")


def window(n: int) -> Visibility:
    """A row sees its own position and the n - 1 before it: a sliding window."""
    return Visibility("window", n)


def recent(n: int) -> Visibility:
    """As `window(n)`: the other name says what a cache still holds, not what a mask admits."""
    return Visibility("recent", n)


def sink(n: int) -> Visibility:
    """Every row sees the first n tokens of its sequence."""
    return Visibility("sink", n)


def manifest_visibility(described: Mapping[str, Any], ends: Sequence[int]) -> Visibility:
    """The visibility that a manifest describes; `ends` are the manifest's sizes."""
    parts = tuple(manifest_visibility(part, ends) for part in described.get("of", ()))
    return Visibility(described["kind"], ends[described["end"]] if "end" in described else 0, parts)


_MADE = {function.__name__: function for function in (all_tokens, causal, window, recent, sink)}


def read_visibility(text: str) -> Visibility:
    """The visibility whose `repr` is `text`."""

    def made(node: ast.expr) -> Visibility:
        if isinstance(node, ast.BinOp):
            left, right = made(node.left), made(node.right)
            return left | right if isinstance(node.op, ast.BitOr) else left & right
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return _MADE[node.func.id](*(ast.literal_eval(size) for size in node.args))

    return made(ast.parse(text, mode="eval").body)
