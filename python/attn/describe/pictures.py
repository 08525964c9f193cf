# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws visibilities as SVG: the tokens that rows see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy

from ..errors import SpecError, expected
from .checks import integer
from .drawing import COLOURS, EMPTY, PALE, axis, frame, label, picture, swatches, width_of

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
    number = width_of(str(total), 10)  # on an axis
    margin, apart = max(number, width_of("row", 10)) + 18, number + 20
    body, top, width = [], 24.0, 0.0
    for (name, see), end in zip(panels, ends, strict=True):
        body.append(label(8, top, f"{name}: {see!r}" if name else spec.name, weight="bold"))
        top += 40
        left, pos0 = margin, 0
        stores = _stores(spec, name)
        for i, store in enumerate(stores):
            tokens = lengths[store.name]
            if store is stores[-1] and store.head_class:
                pos0 += total - end  # A class that keeps fewer tokens keeps the last ones.
            seen = store.see if see is None else store.see & see
            title = f"{store.name} see {store.see!r}"
            states = _states(seen, total - q_len, q_len, pos0, tokens, cell)
            wide, high = max(size * tokens / cell, size), max(size * q_len / cell, size)
            body.append(label(left, top - 16, title))
            if i == 0:
                body.append(label(left - 7, top - 16, "row", anchor="end", size=10))
                body.append(axis(left, top, high, total - q_len, total, down=True))
            body.append(_panel(states, left, top, size, COLOURS[i % len(COLOURS)], (wide, high)))
            body.append(axis(left, top + high, wide, pos0, pos0 + tokens))
            body.append(label(left, top + high + 29, "token", size=10))
            left += max(wide, width_of(title)) + apart
            pos0 += tokens
        width = max(width, left)
        top += high + 60
    unit = "a token of a row" if cell == 1 else f"{cell} tokens of {cell} rows"
    note = f"axes: positions in the sequence; a cell is {unit}"
    body.append(label(8, top, note + ("; the score function may hide more" if spec.score else "")))
    names = [store.name for store in spec.operands]
    shades = [(COLOURS[i % len(COLOURS)], 1.0, name) for i, name in enumerate(names)]
    if len(names) == 1:
        shades = [(COLOURS[0], 1.0, "seen")]
    if cell > 1:
        shades.append((COLOURS[0], PALE, "seen in part" if len(names) == 1 else "fainter: seen in part"))
    shades.append((EMPTY[0], 1.0, "not seen"))
    body.append(swatches(8, top + 20, shades))
    legend = sum(width_of(text) + 38 for _, _, text in shades)
    return picture(max(width, width_of(note) + 270, legend), top + 32, body)


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


def _panel(
    states: numpy.ndarray, left: float, top: float, size: float, colour: str, extent: tuple[float, float]
) -> str:
    """Cells in a frame of `extent`, width and height, at which the last ones are cut."""
    rows, columns = states.shape
    parts = [frame(left, top, *extent)]
    for y in range(rows):
        x = 0
        while x < columns:
            run = 1
            while x + run < columns and states[y, x + run] == states[y, x]:
                run += 1
            if states[y, x]:
                opacity = "" if states[y, x] == 2 else f' fill-opacity="{PALE}"'
                wide, high = min((x + run) * size, extent[0]) - x * size, min(size, extent[1] - y * size)
                parts.append(
                    f'<rect x="{left + x * size:.1f}" y="{top + y * size:.1f}" width="{wide:.1f}" '
                    f'height="{high:.1f}" fill="{colour}"{opacity}/>'
                )
            x += run
    return "\n".join(parts)
