# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts that all pictures share."""

from __future__ import annotations

from xml.sax.saxutils import escape

COLOURS = ("#2f6fb0", "#c0632b", "#3c8d5a", "#8a5cab", "#a8923a")


def label(x: float, y: float, text: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="monospace" font-size="12" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )
