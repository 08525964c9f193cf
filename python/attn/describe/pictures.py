# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws visibilities as SVG: the tokens that rows see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy

from ..errors import SpecError, expected
from .checks import integer
from .drawing import COLOURS, label

if TYPE_CHECKING:
    from .description import Description

_CELLS = 96  # Along the longer side.
_MOST = 1 << 28  # Pairs of a row and a token that are evaluated.


def draw(spec: Description, q_len: int, kv_len: int | Mapping[str, int]) -> str:
    """Draw one sequence: its last `q_len` rows downwards, the tokens of each operand to the right, a panel for each
    head class. All rows of a filled cell see it; some rows of a pale cell do: there a kernel has to mask."""
    lengths = _lengths(spec, kv_len)
    panels = spec.heads.classes if spec.heads else (("", None),)
    ends = [sum(lengths[store.name] for store in _stores(spec, name)) for name, _ in panels]
    total = max(ends)
    if isinstance(q_len, bool) or not isinstance(q_len, (int, numpy.integer)) or not 1 <= q_len <= total:
        nearest = min(max(q_len, 1), total) if isinstance(q_len, int) else None
        raise expected(SpecError, "q_len", f"an integer from 1 to the {total} tokens", q_len, nearest=nearest)
    if q_len * total > _MOST:
        raise expected(SpecError, "q_len", f"at most {_MOST // total} beside {total} tokens", q_len)
    cell = max(1, -(-max(q_len, total) // _CELLS))
    size = min(12.0, 900 / -(-total // cell))
    body, top, width = [], 24.0, 0.0
    for (name, see), end in zip(panels, ends, strict=True):
        body.append(label(8, top, f"{name}: {see!r}" if name else spec.name, weight="bold"))
        top += 22
        left, pos0 = 8.0, 0
        stores = _stores(spec, name)
        for i, store in enumerate(stores):
            tokens = lengths[store.name]
            if store is stores[-1] and store.head_class:
                pos0 += total - end  # A class that keeps fewer tokens keeps the last ones.
            seen = store.see if see is None else store.see & see
            title = f"{store.name} see {store.see!r}"
            states = _states(seen, total - q_len, q_len, pos0, tokens, cell)
            body.append(label(left, top, title))
            body.append(_panel(states, left, top + 6, size, COLOURS[i % len(COLOURS)]))
            left += max(size * states.shape[1], 7.2 * len(title)) + 16
            pos0 += tokens
        width = max(width, left)
        top += 6 + size * -(-q_len // cell) + 30
    unit = "a token" if cell == 1 else f"{cell} tokens"
    note = (
        f"{q_len} rows downwards, tokens to the right; a cell is {unit}, pale where only some of it is seen"
    )
    body.append(label(8, top, note + ("; the score function may hide more" if spec.score else "")))
    width, height = max(width, 7.2 * len(note)), top + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" shape-rendering="crispEdges">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _stores(spec: Description, head_class: str) -> list:
    return [store for store in spec.operands if store.head_class in (None, head_class)]


def _lengths(spec: Description, kv_len: int | Mapping[str, int]) -> dict[str, int]:
    names = [store.name for store in spec.operands]
    lengths = dict(kv_len) if isinstance(kv_len, Mapping) else dict.fromkeys(names, kv_len)
    if set(lengths) != set(names):
        raise expected(SpecError, "kv_len", f"a number, or one for each of {', '.join(names)}", kv_len)
    return {name: integer("kv_len", lengths[name], 1, 1 << 24) for name in names}


def _states(see, first: int, q_len: int, pos0: int, tokens: int, cell: int) -> numpy.ndarray:
    """Return [cells of rows, cells of tokens]: 0 nothing is seen, 1 some, 2 all."""
    k = numpy.arange(pos0, pos0 + tokens)[None]
    edges = numpy.arange(0, tokens, cell)
    states = []
    for row in range(0, q_len, cell):
        q = numpy.arange(first + row, first + min(row + cell, q_len))[:, None]
        mask = numpy.broadcast_to(see.sees(q, k), (len(q), tokens))
        some = numpy.maximum.reduceat(mask.any(axis=0), edges)
        every = numpy.minimum.reduceat(mask.all(axis=0), edges)
        states.append(some.astype(int) + every)
    return numpy.array(states)


def _panel(states: numpy.ndarray, left: float, top: float, size: float, colour: str) -> str:
    rows, columns = states.shape
    parts = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{columns * size:.1f}" height="{rows * size:.1f}" fill="#f2f2f2" '
        'stroke="#999999" stroke-width="0.5"/>'
    ]
    for y in range(rows):
        x = 0
        while x < columns:
            run = 1
            while x + run < columns and states[y, x + run] == states[y, x]:
                run += 1
            if states[y, x]:
                opacity = "" if states[y, x] == 2 else ' fill-opacity="0.4"'
                parts.append(
                    f'<rect x="{left + x * size:.1f}" y="{top + y * size:.1f}" width="{run * size:.1f}" '
                    f'height="{size:.1f}" fill="{colour}"{opacity}/>'
                )
            x += run
    return "\n".join(parts)
