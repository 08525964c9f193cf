# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu quantized`: the speed-up over bf16."""

from plots.palette import COLOURS, REFERENCE, TITLES, bars, head, legend, limits


def draw_quantized(axes, rows):
    ratios = [r["over_bf16"] or 0 for r in rows]
    bytes_saved = [r["byte_ratio"] for r in rows]
    places = range(len(rows))
    axes.barh(places, bytes_saved, fill=False, edgecolor=REFERENCE, linewidth=0.7, label="ratio of bytes")
    missed = [bool(r["bar"]) and ratio < r["bar"] for r, ratio in zip(rows, ratios, strict=True)]
    bars(axes, [r["name"] for r in rows], ratios, missed, label="attn")
    limits(axes, [r["bar"] for r in rows])
    for place, row in zip(places, rows, strict=True):
        for milliseconds in row["peers_ms"].values() if row["bf16_ms"] else ():
            over = row["bf16_ms"] / milliseconds
            style = {"marker": "o", "markersize": 4, "linestyle": "none", "color": COLOURS["flashinfer"]}
            axes.plot([over], [place], **style, label=f"{TITLES['flashinfer']}, e4m3")
    axes.set_xlabel("times as fast as attn in bf16", fontsize=8)
    head(axes, "decode over quantized keys and values")
    legend(axes)
