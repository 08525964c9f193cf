# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu graphs`: milliseconds of a step, and what of them the host takes; and those of pages."""

from gpu_pages import LIMIT_US

SHADES = {"replay": "#d62728", "eager": "#7f7f7f"}


def draw_graphs(axes, rows):
    """Black: the host's part, tables and plan and all launches."""
    for index, (side, shade) in enumerate(SHADES.items()):
        places = [i + 0.35 * (index - 0.5) for i in range(len(rows))]
        axes.barh(places, [r["step_ms"][side] for r in rows], height=0.35, color=shade, label=side)
        for place, row in zip(places, rows, strict=True):
            host = (row["update_us"][side] + row["launches_us"][side]) / 1e3
            axes.plot([host] * 2, [place - 0.175, place + 0.175], color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms a step")
    axes.set_title("attention of a step, captured and made anew", fontsize=9)
    axes.legend(fontsize=7)


def draw_pages(axes, rows):
    """Dashed: what the largest may take."""
    axes.barh(range(len(rows)), [r["attn"]["run_ms"] * 1e3 for r in rows], height=0.6, color=SHADES["replay"])
    axes.axvline(LIMIT_US, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("us a step")
    axes.set_title("who holds which page", fontsize=9)
