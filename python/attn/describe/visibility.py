# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Visibility of tokens: intervals of positions, united and intersected.

A row at position q sees the token at position k when

    all_tokens()               always
    causal()                   k <= q
    window(n), recent(n)       0 <= q - k < n
    window(left, right)        q - left <= k <= q + right
    sink(n)                    k < n
    chunk(n)                   q // n == k // n
    a | b                      either does
    a & b                      both do

No mask is built. The form is compiled; the sizes are numbers of a run: another size needs no compilation. (Source:
include/attn/Dialect/Attn/IR/AttnVisibility.td, which explains the design.)
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError, closest, expected

MAX_SIZE = 2**31 - 1
MAX_DEPTH = 32  # Nested parentheses: the limit of the text's parser.


@dataclass(frozen=True)
class _Term:
    """A term of visibilities. `sees(q, k, *sizes)` takes integers, or arrays of them that broadcast."""

    sizes: tuple[str, ...]
    sees: Callable[..., Any]
    least: int = 0
    shows_nothing_at_0: bool = False
    # Whether it moves with the row: positions that all change by the same amount see as before.
    moves: bool = True


_WINDOW = _Term(("n",), lambda q, k, n: (k <= q) & (q - k < n), shows_nothing_at_0=True)
# Every term by its word and the number of its sizes.
_TERMS = {
    ("all", 0): _Term((), lambda q, k: (q == q) & (k == k)),
    ("causal", 0): _Term((), lambda q, k: k <= q),
    ("window", 1): _WINDOW,
    ("window", 2): _Term(("left", "right"), lambda q, k, left, right: (q - k <= left) & (k - q <= right)),
    ("recent", 1): _WINDOW,
    ("sink", 1): _Term(("n",), lambda q, k, n: (k < n) & (q == q), shows_nothing_at_0=True, moves=False),
    ("chunk", 1): _Term(("n",), lambda q, k, n: q // n == k // n, least=1, moves=False),
}
_WORDS = tuple(dict.fromkeys(word for word, _ in _TERMS))


@dataclass(frozen=True)
class Visibility:
    """A set of pairs of positions. Made by `all_tokens`, `causal`, `window`, `recent`, `sink`, `chunk`, `|` and `&`.

    kind    the word of a term, or `and` or `or`
    own     the sizes of a term, in tokens
    parts   the operands of `and` and `or`
    """

    kind: str
    own: tuple[int, ...] = ()
    parts: tuple[Visibility, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (*_WORDS, "and", "or"):
            raise expected(
                SpecError,
                "Visibility(kind)",
                ", ".join(_WORDS) + ", and or or",
                self.kind,
                nearest=closest(self.kind, _WORDS),
                hint="Visibilities are made by attn.causal(), attn.window(n) and so on, combined with & and |",
            )
        if self.kind in _WORDS:
            object.__setattr__(self, "own", _sizes_of(self.kind, self.own))
        elif self.own:
            raise expected(SpecError, f"Visibility({self.kind!r}, sizes)", "none", self.own)
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
        if not self.parts:
            return self._term.sees(q, k, *self.own)
        first, *rest = (part.sees(q, k) for part in self.parts)
        for seen in rest:
            first = first | seen if self.kind == "or" else first & seen
        return first

    def is_empty(self) -> bool:
        """Whether no row sees anything at any position: a size of 0 in the right term."""
        if self.parts:
            empty = [part.is_empty() for part in self.parts]
            return all(empty) if self.kind == "or" else any(empty)
        return self._term.shows_nothing_at_0 and self.own == (0,)

    @property
    def _term(self) -> _Term:
        return _TERMS[self.kind, len(self.own)]

    def sizes(self) -> Iterator[int]:
        """Yield the sizes of all terms, in the order of the text."""
        yield from self.own
        for part in self.parts:
            yield from part.sizes()

    def kinds(self) -> Iterator[str]:
        """Yield the words of all terms: all, causal, window, recent, sink, chunk."""
        if not self.parts:
            yield self.kind
        for part in self.parts:
            yield from part.kinds()

    def fixed_term(self) -> str:
        """Return the word of a term that depends on where positions begin: sink, chunk. "" if there is none."""
        if not self.parts:
            return "" if self._term.moves else self.kind
        return next(filter(None, (part.fixed_term() for part in self.parts)), "")

    def is_everything(self) -> bool:
        """Whether rows see everything at all positions."""
        if self.parts:
            every = [part.is_everything() for part in self.parts]
            return any(every) if self.kind == "or" else all(every)
        return self.kind == "all"

    def resized(self, sizes: dict[int, int]) -> Visibility:
        """Return the same form with other sizes."""
        own = tuple(sizes[size] for size in self.own)
        return Visibility(self.kind, own, tuple(part.resized(sizes) for part in self.parts))

    def mlir(self) -> str:
        """Return the expression in the dialect's syntax."""
        return self._text({"all": "all", "causal": "causal"}, " and ")

    def __repr__(self) -> str:
        return self._text({"all": "all_tokens()", "causal": "causal()"}, " & ")

    def _text(self, names: dict[str, str], conjunction: str) -> str:
        if not self.parts:
            return names.get(self.kind) or f"{self.kind}({', '.join(map(str, self.own))})"
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
    return Visibility(kind, (), tuple(parts))


def check_visibility(argument: str, see: object) -> Visibility:
    """Return `see` itself. SpecError if it is not a visibility."""
    if isinstance(see, Visibility):
        return see
    legal = (
        "a visibility (all_tokens(), causal(), window(n), window(left, right), recent(n), sink(n), chunk(n), combined "
        "with | and &)"
    )
    hint = _uncalled(see)
    if not hint and callable(see):
        hint = "A function of positions is no visibility; what intervals cannot say is no mask but a score function"
    raise expected(SpecError, argument, legal, see, hint=hint)


def _uncalled(given: object) -> str:
    """Return a message's hint about a function of this module that was not called."""
    if any(given is function for function in (all_tokens, causal)):
        return f"Did you mean {given.__name__}()?"  # type: ignore[attr-defined]
    if any(given is function for function in (window, recent, sink, chunk)):
        return f"Did you mean {given.__name__}(n)?"  # type: ignore[attr-defined]
    return ""


def _sizes_of(kind: str, given: object) -> tuple[int, ...]:
    """Return the sizes of a term, checked. SpecError."""
    if not isinstance(given, tuple) or (kind, len(given)) not in _TERMS:
        forms = [f"({', '.join(term.sizes)})" for (word, _), term in _TERMS.items() if word == kind]
        raise expected(SpecError, f"the sizes of {kind}", " or ".join(forms), given)
    term = _TERMS[kind, len(given)]
    return tuple(
        _size(f"{kind}({', '.join(term.sizes)})", name if len(given) > 1 else "", term.least, size)
        for name, size in zip(term.sizes, given, strict=True)
    )


def _size(form: str, name: str, least: int, n: object) -> int:
    try:
        size = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        size = -1
    if isinstance(n, bool) or not least <= size <= MAX_SIZE:
        nearest = (
            min(max(int(n), least), MAX_SIZE) if isinstance(n, (int, float)) and abs(n) < 2**64 else None
        )
        where = f"{name} of {form}" if name else form
        raise expected(SpecError, where, f"an integer from {least} to {MAX_SIZE}", n, nearest=nearest)
    return size


def all_tokens() -> Visibility:
    """Every row sees every token."""
    return Visibility("all")


def causal() -> Visibility:
    """A row sees the tokens up to its own position."""
    return Visibility("causal")


def window(n: int, right: int | None = None) -> Visibility:
    """Make a sliding window.

    window(n)             a row sees its own position and the n - 1 before it
    window(left, right)   a row sees `left` positions before its own, its own, and `right` after it, as `window_size` of
                          flash-attn
    """
    return Visibility("window", (n,) if right is None else (n, right))


def recent(n: int) -> Visibility:
    """A row sees its own position and the n - 1 before it, as in `window(n)`. The name says which tokens a cache keeps,
    `window` which tokens a mask admits."""
    return Visibility("recent", (n,))


def sink(n: int) -> Visibility:
    """Every row sees the first n tokens of its sequence."""
    return Visibility("sink", (n,))


def chunk(n: int) -> Visibility:
    """A row sees the n positions of its own chunk: [0, n), [n, 2 n) and so on. With `& causal()` this is the chunked
    attention of Llama 4."""
    return Visibility("chunk", (n,))


def sides(is_causal: bool, window_size: object) -> Visibility:
    """Return the visibility of flash-attn's `window_size=(left, right)`: positions before and after a row's own, -1 for
    no limit. `is_causal`: as if right was 0. SpecError."""
    pair = window_size if isinstance(window_size, (tuple, list)) and len(window_size) == 2 else None
    if pair is None or not all(
        isinstance(side, int) and not isinstance(side, bool) and side >= -1 for side in pair
    ):
        legal = (
            "two integers (left, right) from -1 on: positions before and after a row's own, -1 for no limit"
        )
        raise expected(SpecError, "window_size", legal, window_size)
    left, right = pair
    if is_causal or right == 0:
        return causal() if left in (-1, MAX_SIZE) else window(left + 1)
    if left == right == -1:
        return all_tokens()
    return window(MAX_SIZE if left == -1 else left, MAX_SIZE if right == -1 else right)


def manifest_visibility(described: Mapping[str, Any], ends: Sequence[int]) -> Visibility:
    """Return the visibility that a manifest describes; `ends` are the manifest's sizes."""
    parts = tuple(manifest_visibility(part, ends) for part in described.get("of", ()))
    first = described.get("end", 0)
    own = tuple(ends[first : first + described.get("sizes", 1)]) if "end" in described else ()
    return Visibility(described["kind"], own, parts)


_MADE = {function.__name__: function for function in (all_tokens, causal, window, recent, sink, chunk)}


@functools.lru_cache(maxsize=256)
def read_visibility(text: str) -> Visibility:
    """Return the visibility whose `repr` is `text`. Cached: adapters read a mask's in every step."""

    def made(node: ast.expr) -> Visibility:
        if isinstance(node, ast.BinOp):
            left, right = made(node.left), made(node.right)
            return left | right if isinstance(node.op, ast.BitOr) else left & right
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return _MADE[node.func.id](*(ast.literal_eval(size) for size in node.args))

    return made(ast.parse(text, mode="eval").body)
