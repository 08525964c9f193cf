# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu graphs`: milliseconds of a step, and what of them the host takes; and those of pages, diffkv,
layouts, planning, duo, context, outputs and significance."""

from parts.diffkv import PAPER_THROUGHPUT
from parts.duo import BARS
from parts.graphs import EMBEDDED
from parts.layouts import SLOWER
from parts.outputs import outputs_limit
from parts.pages import LIMIT_US
from parts.planning import LIMIT_US as PLAN_LIMIT_US
from parts.significance import significance_limit

SHADES = {"replay": "#d62728", "eager": "#7f7f7f", EMBEDDED: "#1f77b4"}


def draw_graphs(axes, rows):
    """Black: the host's part, tables and plan and all launches."""
    for index, (side, shade) in enumerate(SHADES.items()):
        there = [(i + 0.25 * (index - 1), row) for i, row in enumerate(rows) if side in row["step_ms"]]
        if not there:
            continue
        places, times = [place for place, _ in there], [row["step_ms"][side] for _, row in there]
        axes.barh(places, times, height=0.25, color=shade, label=side)
        for place, row in there:
            host = (row["update_us"][side] + row["launches_us"][side]) / 1e3
            axes.plot([host] * 2, [place - 0.125, place + 0.125], color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms a step")
    axes.set_title("attention of a step, captured and made anew", fontsize=9)
    axes.legend(fontsize=7)


def draw_limited(axes, rows, numbers, limit, unit, title):
    """A bar of each row. Dashed: what it may reach."""
    axes.barh(range(len(rows)), numbers, height=0.6, color=SHADES["replay"])
    axes.axvline(limit, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=9)


def draw_pages(axes, rows):
    numbers = [r["attn"]["run_ms"] * 1e3 for r in rows]
    draw_limited(axes, rows, numbers, LIMIT_US, "us a step", "who holds which page")


def draw_diffkv(axes, rows):
    """Tokens a second of each way to store keys and values, over bf16's. Dashed: the paper's least."""
    for index, row in enumerate(rows):
        ratios = [found["throughput_ratio"] for found in row["ways"].values()]
        height = 0.8 / len(rows)
        places = [place + height * (index - (len(rows) - 1) / 2) for place in range(len(ratios))]
        axes.barh(places, ratios, height=height, label=row["name"])
    axes.axvline(PAPER_THROUGHPUT[0], color="black", linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(rows[0]["ways"])), list(rows[0]["ways"]), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("tokens a second, over bf16's")
    axes.set_title("a fixed memory for keys and values; synthetic attention", fontsize=9)
    axes.legend(fontsize=6)


def draw_planning(axes, rows):
    numbers = [r["plan_ms"] * 1e3 for r in rows]
    draw_limited(axes, rows, numbers, PLAN_LIMIT_US, "us a plan", "plans that the GPU makes")


def draw_longer(axes, rows, limit_of, title):
    """How many times as long each takes. Black: what it may reach."""
    axes.barh(range(len(rows)), [r["longer"] for r in rows], height=0.6, color=SHADES["replay"])
    for place, row in enumerate(rows):
        if limit := limit_of(row):
            axes.plot([limit] * 2, [place - 0.3, place + 0.3], color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("times as long")
    axes.set_title(title, fontsize=9)


def draw_outputs(axes, rows):
    draw_longer(axes, rows, outputs_limit, "full and streaming attention of one launch, over full alone")


def draw_significance(axes, rows):
    draw_longer(
        axes, rows, significance_limit, "steps that say what tokens are worth, over steps that do not"
    )


def draw_context(axes, rows):
    """Dark: attention."""
    for name, shade in (("run_ms", "replay"), ("attention_ms", "eager")):
        numbers = [row["attn"]["run_ms"] if name == "run_ms" else row[name] for row in rows]
        axes.barh(range(len(rows)), numbers, height=0.6, color=SHADES[shade])
    axes.set_yticks(range(len(rows)), [f"{row['tokens']:,} tokens" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms a token, and of them attention")
    axes.set_title("a model behind a long context of four bits, half of its heads streaming", fontsize=9)


def draw_layouts(axes, rows):
    numbers = [r["slower"] for r in rows]
    draw_limited(
        axes, rows, numbers, SLOWER, "times as long", "the slowest layout, over tensors of their own"
    )


def draw_duo(axes, rows):
    """Black: what the paper reports."""
    names = ("decode_memory", "prefill_memory", "decode_speed", "prefill_speed")
    labels = [f"{row['kind']}, {name.replace('_', ': ')}" for row in rows for name in names]
    axes.barh(
        range(len(labels)), [row[name] for row in rows for name in names], height=0.6, color=SHADES["replay"]
    )
    for place, bar in enumerate(bar for row in rows for bar in BARS[row["kind"]]):
        axes.plot([bar] * 2, [place - 0.3, place + 0.3], color="black", linewidth=1)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("times less")
    axes.set_title("some heads stream, against all keep everything", fontsize=9)
