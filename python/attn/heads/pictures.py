# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the heat map of gates, as SVG."""

from __future__ import annotations

import numpy

from ..describe.drawing import COLOURS, INK, LINE, axis, label, picture, width_of

_CELL = 14.0


def heat_map(values: numpy.ndarray, framed: numpy.ndarray | None) -> str:
    """Draw layers downwards, KV heads to the right, and a scale from 0 to 1 below; gates are clipped to it. `framed`,
    bool as `values`: cells with a frame."""
    layers, heads = values.shape
    left, top = 54.0, 56.0
    body = [label(8, 20, f"gates of {layers} layers and {heads} KV heads", weight="bold")]
    body.append(label(left - 7, top - 6, "layer", anchor="end", size=10))
    for layer in range(layers):
        y = top + layer * _CELL
        if layer % 4 == 0:
            body.append(label(left - 7, y + 10.5, str(layer), anchor="end", size=10))
        for head in range(heads):
            frame = framed is not None and bool(framed[layer, head])
            body.append(_cell(left + head * _CELL, y, float(values[layer, head]), frame))
    bottom = top + layers * _CELL
    for head in range(0, heads, 2):
        body.append(label(left + (head + 0.5) * _CELL, bottom + 13, str(head), anchor="middle", size=10))
    body.append(label(left, bottom + 27, "KV head", size=10))
    bottom += 46
    for step in range(11):
        body.append(_cell(left + step * _CELL, bottom, step / 10, False))
    body.append(axis(left + _CELL / 2, bottom + _CELL + 2, 10 * _CELL, 0, 1))
    says = "0 streams, 1 retrieves" + ("; framed: chosen to retrieve" if framed is not None else "")
    body.append(label(left + 12 * _CELL, bottom + 11, says))
    width = max(left + heads * _CELL, left + 12 * _CELL + width_of(says)) + 12
    return picture(width, bottom + _CELL + 32, body)


def _cell(x: float, y: float, gate: float, frame: bool) -> str:
    shade = min(max(gate, 0.0), 1.0)
    kind, stroke, stroke_width = ("frame", INK[0], 2) if frame else ("line", LINE[0], 0.5)
    inset, size = (2.0, _CELL - 4) if frame else (0.5, _CELL - 1)
    return (
        f'<rect class="attn-{kind}" x="{x + inset:.1f}" y="{y + inset:.1f}" width="{size:.1f}" height="{size:.1f}" '
        f'fill="{COLOURS[0]}" fill-opacity="{shade:.2f}" stroke="{stroke}" stroke-width="{stroke_width}">'
        f"<title>{gate:.3f}</title></rect>"
    )
