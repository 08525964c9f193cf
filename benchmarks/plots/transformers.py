# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu transformers`, milliseconds from a token to the next, and of `bench gpu serving`, tokens a second."""

SHADES = {"attn": "#d62728", "sdpa": "#7f7f7f"}


def draw_models(axes, rows):
    """Black: the floor, weights and keys and values read once."""
    for index, (side, shade) in enumerate(SHADES.items()):
        there = [(i, r["times_of"][side]) for i, r in enumerate(rows) if side in r["times_of"]]
        if there:
            at, milliseconds = zip(*there, strict=True)
            places = [i + 0.35 * (index - 0.5) for i in at]
            axes.barh(places, milliseconds, height=0.35, color=shade, label=side)
    for place, row in enumerate(rows):
        axes.plot([row["floor_ms"]] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms a token")
    axes.set_title("Llama-3.1-8B's shape in generate", fontsize=9)
    axes.legend(fontsize=7)


SERVERS = {"engine": "#d62728", "generate_batch": "#ff9896", "generate_batch sdpa": "#7f7f7f"}


def draw_serving(axes, rows):
    """Bars of who answers requests, for each kind of them."""
    for index, (side, shade) in enumerate(SERVERS.items()):
        there = [
            (i, r["tokens_per_second"][side]) for i, r in enumerate(rows) if side in r["tokens_per_second"]
        ]
        if there:
            at, rates = zip(*there, strict=True)
            axes.barh([i + 0.25 * (index - 1) for i in at], rates, height=0.25, color=shade, label=side)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("generated tokens a second")
    axes.set_title("requests that come and go, Llama-3.1-8B's shape", fontsize=9)
    axes.legend(fontsize=7)
