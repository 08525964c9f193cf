# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the memory layout of keys and values, as SVG."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..memory.dtypes import DTYPES
from ..memory.formats import Description
from .drawing import COLOURS, axis, frame, label, picture

# The width of a line of keys in 16 bits, all heads of a token or all tokens of a head: lines are drawn to
# this scale.
_WIDTH = 720.0
_LINES = 16
_STEP = 11.0


class _Block(NamedTuple):
    """Lines of a tensor in the order of memory, of equal cells; the first head's are the first line or the first cells."""

    lines: int
    cells: int
    cell_bytes: int
    by_head: bool
    says: str


def draw_page(layout: str, page_size: int, found: Description, heads: int, dims: tuple[int, int]) -> str:
    """A page, or the first tokens of another store: a block for each tensor, whose lines are as long as they have bytes,
    the first head's in full colour."""
    unified = found.page_bytes > 0
    by_head = found.heads_first or unified  # A line is one head's part of a page.
    cells = page_size if by_head else heads
    scale = _WIDTH / (2 * cells * max(dims))
    plain = 2 * (dims[0] if found.latent else sum(dims))
    stored = ", ".join(dict.fromkeys((found.key.text(), found.value.text())))
    share = f", {found.token_bytes / plain:.2f} of the {plain} in 16 bits"
    says = f"{found.token_bytes} bytes a token of one head" + (share if found.token_bytes != plain else "")
    if unified:
        says += f"; {found.page_bytes} a page, whose parts lie side by side"
    body = [label(8, 24, f"{layout}: {stored}", weight="bold"), label(8, 44, says)]
    dark = "" if unified else ", the first head's in full colour"
    top = 72.0
    for index, (name, dtype, extents) in enumerate(found.tensors):
        sizes = [heads if extent == "heads" else extent for extent in extents]
        part = "kv".index(name[0])
        block = _block(index < 2, found, part, sizes, DTYPES[dtype][1], by_head)
        body.append(label(8, top, f"{name}: {DTYPES[dtype][0]} [{', '.join(map(str, sizes))}]; {block.says}"))
        height = _STEP * min(block.lines, _LINES)
        if index < 2:
            body.append(frame(8, top + 6, 2 * cells * dims[part] * scale, height - 2))
        body.append(_draw(block, top + 6, scale, COLOURS[part]))
        top += 6 + height + 24
    body.append(axis(8, top, _WIDTH, 0, round(_WIDTH / scale)))
    body.append(label(8 + _WIDTH, top + 30, "bytes of a line", anchor="end", size=10))
    body.append(label(8, top + 48, f"lines in the order of memory{dark}; frames: what 16 bits would take"))
    return picture(780, top + 60, body)


def _block(codes: bool, found: Description, part: int, sizes: list, itemsize: int, by_head: bool) -> _Block:
    format = (found.key, found.value)[part]
    if not codes and format.per in ("head", "tensor"):
        return _Block(1, sizes[0], itemsize, False, "given by the caller")
    inner = 1 if codes else 2 if format.code.startswith("i") else 0
    front, of_cell = sizes[: len(sizes) - inner], sizes[len(sizes) - inner :]
    lines = front[-2] if isinstance(front[-2], int) else 1 if found.page_bytes else _LINES
    says = "a page" if found.page_bytes else f"a line for each {'head' if by_head else 'token'}"
    return _Block(lines, front[-1], itemsize * math.prod(of_cell), by_head, says)


def _draw(block: _Block, top: float, scale: float, colour: str) -> str:
    width, parts = max(block.cell_bytes * scale, 0.5), []
    for line in range(min(block.lines, _LINES)):
        for begin, end, dark in ((0, 1, True), (1, block.cells, False)):
            if block.by_head:
                begin, end, dark = (0, block.cells, line == 0) if dark else (0, 0, False)
            if begin < end:
                parts.append(
                    f'<rect x="{8 + begin * width:.1f}" y="{top + line * _STEP:.1f}" '
                    f'width="{(end - begin) * width:.1f}" height="{_STEP - 2:.1f}" fill="{colour}"'
                    + ("/>" if dark else ' fill-opacity="0.3"/>')
                )
    return "\n".join(parts)
