# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the heat map of gates, as SVG."""

from __future__ import annotations

import numpy

from ..describe.drawing import COLOURS, label

_CELL = 14.0


def heat_map(values: numpy.ndarray, framed: numpy.ndarray | None) -> str:
    """Draw layers downwards, KV heads to the right, and a scale from 0 to 1 below; gates are clipped to it. `framed`,
    bool as `values`: cells with a frame."""
    layers, heads = values.shape
    left, top = 44.0, 40.0
    body = [label(8, 20, f"gates of {layers} layers, {heads} KV heads to the right", weight="bold")]
    for layer in range(layers):
        y = top + layer * _CELL
        if layer % 4 == 0:
            body.append(label(8, y + 11, str(layer)))
        for head in range(heads):
            frame = framed is not None and bool(framed[layer, head])
            body.append(_cell(left + head * _CELL, y, float(values[layer, head]), frame))
    bottom = top + layers * _CELL + 12
    for step in range(11):
        body.append(_cell(left + step * _CELL, bottom, step / 10, False))
    says = "0 streams, 1 retrieves" + ("; framed: chosen to retrieve" if framed is not None else "")
    body.append(label(left + 12 * _CELL, bottom + 11, says))
    width = max(left + heads * _CELL, left + 12 * _CELL + 7.2 * len(says)) + 12
    height = bottom + _CELL + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" shape-rendering="crispEdges">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _cell(x: float, y: float, gate: float, frame: bool) -> str:
    shade = min(max(gate, 0.0), 1.0)
    stroke = 'stroke="#000000" stroke-width="2"' if frame else 'stroke="#cccccc" stroke-width="0.5"'
    inset, size = (2.0, _CELL - 4) if frame else (0.5, _CELL - 1)
    return (
        f'<rect x="{x + inset:.1f}" y="{y + inset:.1f}" width="{size:.1f}" height="{size:.1f}" '
        f'fill="{COLOURS[0]}" fill-opacity="{shade:.2f}" {stroke}><title>{gate:.3f}</title></rect>'
    )
