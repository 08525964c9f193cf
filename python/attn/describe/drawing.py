# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What pictures have in common: colours, words, axes with numbers, and a page that is light or dark as its viewer is.

benchmarks/plots/palette.py and runtime/src/picture/Svg.h have the same colours; test/lint/test_pictures.py compares them.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#a6611a", "#8c6bb1")
"""Of series, in order: blue, orange, green, pink, brown, purple. No picture has more."""
PALE = 0.4
"""How opaque a colour is that stands for a part of what it means."""

INK, LINE, EMPTY, PAPER = (
    ("#1f2328", "#e6edf3"),
    ("#6e7781", "#9198a1"),
    ("#f2f2f2", "#21262d"),
    ("#ffffff", "#0d1117"),
)
"""Words, lines, what is empty, and the page: on a light screen and on a dark one."""

# Names are unique, as a notebook has the style for its whole page.
_STYLE = (
    "<style>@media (prefers-color-scheme: dark) {"
    f".attn-ink {{fill: {INK[1]}}} .attn-line {{stroke: {LINE[1]}}} .attn-frame {{stroke: {INK[1]}}} "
    f".attn-empty {{fill: {EMPTY[1]}}} .attn-paper {{fill: {PAPER[1]}}}"
    "}</style>"
)
_SIZE, _SMALL = 12, 10  # of words, and of numbers on axes
CHARACTER = 0.6
"""Width of a character, over the size of its font: all words are monospaced."""


def width_of(text: str, size: int = _SIZE) -> float:
    """Pixels."""
    return CHARACTER * size * len(text)


def label(
    x: float, y: float, text: str, weight: str = "normal", anchor: str = "start", size: int = _SIZE
) -> str:
    """Words on the line at `y`, which begin, end or have their middle at `x`."""
    return (
        f'<text class="attn-ink" x="{x:.1f}" y="{y:.1f}" font-family="monospace" font-size="{size}" '
        f'font-weight="{weight}" text-anchor="{anchor}" fill="{INK[0]}">{escape(text)}</text>'
    )


def frame(left: float, top: float, width: float, height: float) -> str:
    """A rectangle for something that may be empty."""
    return (
        f'<rect class="attn-empty attn-line" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{EMPTY[0]}" stroke="{LINE[0]}" stroke-width="1"/>'
    )


def swatches(left: float, y: float, entries: list[tuple[str, float, str]]) -> str:
    """A legend in one line: colours (or EMPTY[0]), how opaque they are, and what they mean."""
    parts = []
    for colour, opacity, text in entries:
        empty = "attn-empty " if colour == EMPTY[0] else ""
        opaque = "" if opacity == 1 else f' fill-opacity="{opacity}"'
        parts.append(
            f'<rect class="{empty}attn-line" x="{left:.1f}" y="{y - 9:.1f}" width="12" height="9" fill="{colour}"{opaque} '
            f'stroke="{LINE[0]}" stroke-width="1"/>'
        )
        parts.append(label(left + 18, y, text))
        left += 18 + width_of(text) + 20
    return "\n".join(['<g class="attn-legend">', *parts, "</g>"])


def ticks(begin: float, end: float, most: float) -> list[int]:
    """Round numbers from `begin` to `end`, at most `most` of them and one at the least: multiples of 1, 2 or 5 times a power of
    ten."""
    step, factors = 1, (2, 2.5, 2)
    for i in range(64):
        first = -int(-begin // step) * step
        found = list(range(first, int(end) + 1, step))
        if len(found) <= max(most, 1):
            return found or [int(begin)]
        step = int(step * factors[i % 3])
    return [int(begin)]


def axis(x: float, y: float, length: float, begin: int, end: int, *, down: bool = False) -> str:
    """Numbers from `begin` to `end` along a line from (x, y) on: to the right, below it, or downwards, left of it."""
    far = (x, y + length) if down else (x + length, y)
    parts = [_line(x, y, *far)]
    most = length / (22 if down else width_of(str(end), _SMALL) + 18)
    for number in ticks(begin, end, most):
        at = length * (number - begin) / max(end - begin, 1)
        if down:
            parts.append(_line(x - 4, y + at, x, y + at))
            parts.append(label(x - 7, y + at + 3.5, str(number), anchor="end", size=_SMALL))
        else:
            parts.append(_line(x + at, y, x + at, y + 4))
            parts.append(label(x + at, y + 15, str(number), anchor="middle", size=_SMALL))
    return "\n".join(parts)


def _line(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<path class="attn-line" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{LINE[0]}" stroke-width="1"/>'


def picture(width: float, height: float, body: list[str]) -> str:
    """The whole SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" shape-rendering="crispEdges">\n{_STYLE}\n'
        f'<rect class="attn-paper" width="100%" height="100%" fill="{PAPER[0]}"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )
