# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu quantized`: how many times as fast as bf16."""

MET, MISSED, NEUTRAL = "#2ca02c", "#d62728", "#7f7f7f"


def draw_quantized(axes, rows):
    """Hollow: the ratio of bytes; black: the bar; red where it is missed; x: FlashInfer's e4m3."""
    places = range(len(rows))
    axes.barh(places, [r["byte_ratio"] for r in rows], fill=False, edgecolor=NEUTRAL, linewidth=0.5)
    ratios = [r["over_bf16"] or 0 for r in rows]
    colours = [MISSED if r["bar"] and x < r["bar"] else MET for r, x in zip(rows, ratios, strict=True)]
    axes.barh(places, ratios, color=colours, height=0.6)
    for place, row in zip(places, rows, strict=True):
        if row["bar"]:
            axes.plot([row["bar"]] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1)
        for milliseconds in row["peers_ms"].values() if row["bf16_ms"] else ():
            axes.plot([row["bf16_ms"] / milliseconds], [place], marker="x", markersize=3, color="black")
    axes.set_yticks(places, [r["name"] for r in rows], fontsize=max(3, min(7, 180 / len(rows))))
    axes.axvline(1, color="black", linewidth=0.5)
    axes.invert_yaxis()
    axes.set_title("decode over codes: times as fast as bf16", fontsize=9)
