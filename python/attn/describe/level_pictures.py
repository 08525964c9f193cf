# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws how the tokens of a compressed cache are kept, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from .drawing import COLOURS, EMPTY, axis, label, picture, swatches

_WIDTH, _STEP, _LEFT = 620.0, 11.0, 110.0
_KINDS = (("pruned", EMPTY[0]), ("low", COLOURS[1]), ("high", COLOURS[0]))
"""By the number that stands for them."""


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
    top, width = 78.0, _WIDTH / max(tokens, 1)
    body.append(label(_LEFT - 7, top - 6, "KV head", anchor="end", size=10))
    for layer in range(layers):
        body.append(label(8, top + _STEP - 2, f"layer {layer}"))
        for head, line in enumerate(levels[layer]):
            body.append(label(_LEFT - 7, top + _STEP - 2.5, str(head), anchor="end", size=9))
            edges = [0, *(numpy.flatnonzero(numpy.diff(line)) + 1).tolist(), tokens]
            for begin, end in zip(edges[:-1], edges[1:], strict=True):
                colour = _KINDS[int(line[begin])][1]
                empty = 'class="attn-empty" ' if colour == EMPTY[0] else ""
                body.append(
                    f'<rect {empty}x="{_LEFT + begin * width:.2f}" y="{top:.1f}" width="{(end - begin) * width:.2f}" '
                    f'height="{_STEP - 2:.1f}" fill="{colour}"/>'
                )
            top += _STEP
        top += 6
    body.append(axis(_LEFT, top - 4, _WIDTH, 0, tokens))
    body.append(label(_LEFT + _WIDTH, top + 26, "token", anchor="end", size=10))
    body.append(swatches(_LEFT, top + 26, [(colour, 1.0, name) for name, colour in reversed(_KINDS)]))
    return picture(760, top + 38, body)
