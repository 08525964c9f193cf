# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws how the tokens of a compressed cache are kept, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from .drawing import COLOURS, label

_WIDTH, _STEP, _LEFT = 640.0, 11.0, 96.0
_KINDS = (("pruned", "#eeeeee"), ("low", COLOURS[1]), ("high", COLOURS[0]))
"""In the order of the numbers that stand for them."""


def draw_levels(levels: numpy.ndarray, stats: Mapping[str, Any]) -> str:
    """Draw int8 [layers, KV heads, tokens]: a line for each KV head, layer by layer, a column for each token. `stats`:
    totals."""
    layers, heads, tokens = levels.shape
    says = (
        f"{stats['bytes']} bytes of {stats['plain_bytes']} in 16 bits, {stats['compression']:.2f} times fewer"
    )
    body = [
        label(8, 24, f"{tokens} tokens of {layers} layers of {heads} KV heads", weight="bold"),
        label(8, 44, says),
    ]
    top, width = 62.0, _WIDTH / max(tokens, 1)
    for layer in range(layers):
        body.append(label(8, top + _STEP - 2, f"layer {layer}"))
        for line in levels[layer]:
            edges = [0, *(numpy.flatnonzero(numpy.diff(line)) + 1).tolist(), tokens]
            for begin, end in zip(edges[:-1], edges[1:], strict=True):
                colour = _KINDS[int(line[begin])][1]
                body.append(
                    f'<rect x="{_LEFT + begin * width:.2f}" y="{top:.1f}" width="{(end - begin) * width:.2f}" '
                    f'height="{_STEP - 2:.1f}" fill="{colour}"/>'
                )
            top += _STEP
        top += 6
    at = _LEFT
    for name, colour in reversed(_KINDS):
        body.append(f'<rect x="{at:.1f}" y="{top + 4:.1f}" width="12" height="9" fill="{colour}"/>')
        body.append(label(at + 18, top + 13, name))
        at += 90
    top += 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {top:.0f}" width="760" height="{top:.0f}" '
        'shape-rendering="crispEdges">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )
