# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu graphs`: milliseconds of a step, and the host's part of them; and those of pages,
diffkv, layouts, planning, duo, context, outputs, append, significance, latents, wide heads and row."""

from parts.cache import COPY_BAR
from parts.diffkv import PAPER_THROUGHPUT
from parts.duo import BARS
from parts.graphs import EMBEDDED
from parts.latent import OVER_BF16, SHARE, TFLOPS, latent_bars
from parts.layouts import SLOWER
from parts.outputs import outputs_limit
from parts.pages import LIMIT_US
from parts.planning import LIMIT_US as PLAN_LIMIT_US
from parts.row import BARS as ROW_BARS
from parts.row import row_bars
from parts.significance import significance_limit
from parts.wide import NARROW, RATE, wide_bars
from parts.wide import SHARE as WIDE_SHARE
from plots.palette import (
    COLOURS,
    LIMIT,
    OTHER_FORM,
    THIRD_FORM,
    bars,
    head,
    hosts,
    legend,
    limits,
    name_rows,
    sustained,
)

# Steps of attn: recorded, eager from Python, and eager from C++.
SHADES = {"replay": COLOURS["attn"], "eager": OTHER_FORM, EMBEDDED: THIRD_FORM}
LABELS = {"replay": "recorded"}


def draw_graphs(axes, rows):
    for index, (side, shade) in enumerate(SHADES.items()):
        there = [(i + 0.25 * (index - 1), row) for i, row in enumerate(rows) if side in row["step_ms"]]
        if not there:
            continue
        places, times = [place for place, _ in there], [row["step_ms"][side] for _, row in there]
        axes.barh(places, times, height=0.25, color=shade, label=f"attn, {LABELS.get(side, side)}")
        for place, row in there:
            host = (row["update_us"][side] + row["launches_us"][side]) / 1e3
            hosts(axes, host, place, 0.08)
    name_rows(axes, [r["name"] for r in rows])
    axes.set_xlabel("ms a step", fontsize=8)
    head(axes, "attention of a step, captured and made anew")
    legend(axes)


def draw_limited(axes, rows, numbers, limit, unit, title):
    """Draw a bar of each row, and its limit."""
    bars(axes, [r["name"] for r in rows], numbers, [number > limit for number in numbers])
    axes.axvline(limit, color=LIMIT, linewidth=1.2, label="bar")
    axes.set_xlabel(unit, fontsize=8)
    head(axes, title)
    legend(axes)


def draw_pages(axes, rows):
    numbers = [r["attn"]["run_ms"] * 1e3 for r in rows]
    draw_limited(axes, rows, numbers, LIMIT_US, "µs a step", "who holds which page")


def draw_diffkv(axes, rows):
    """Draw tokens a second of each way to store keys and values, over bf16's."""
    for index, row in enumerate(rows):
        ratios = [found["throughput_ratio"] for found in row["ways"].values()]
        height = 0.8 / len(rows)
        places = [place + height * (index - (len(rows) - 1) / 2) for place in range(len(ratios))]
        opaque = 1 - 0.6 * index / max(len(rows) - 1, 1)
        axes.barh(places, ratios, height=height, color=COLOURS["attn"], alpha=opaque, label=row["name"])
    axes.axvline(PAPER_THROUGHPUT[0], color=LIMIT, linewidth=1.2, label="bar: the paper's least")
    name_rows(axes, list(rows[0]["ways"]))
    axes.set_xlabel("tokens a second, over bf16's", fontsize=8)
    head(axes, "a fixed memory for keys and values; synthetic attention")
    legend(axes)


def draw_planning(axes, rows):
    numbers = [r["plan_ms"] * 1e3 for r in rows]
    draw_limited(axes, rows, numbers, PLAN_LIMIT_US, "µs a plan", "plans that the GPU makes")


def draw_longer(axes, rows, limit_of, title):
    """Draw how many times as long each takes, and its limit."""
    allowed = list(map(limit_of, rows))
    missed = [bool(limit) and row["longer"] > limit for row, limit in zip(rows, allowed, strict=True)]
    bars(axes, [r["name"] for r in rows], [r["longer"] for r in rows], missed)
    limits(axes, allowed)
    axes.set_xlabel("times as long", fontsize=8)
    head(axes, title)
    legend(axes)


def draw_outputs(axes, rows):
    draw_longer(axes, rows, outputs_limit, "full and streaming attention of one launch, over full alone")


def draw_append(axes, rows):
    numbers = [r["of_copy"] for r in rows]
    bars(axes, [r["name"] for r in rows], numbers, [number < COPY_BAR for number in numbers])
    axes.axvline(COPY_BAR, color=LIMIT, linewidth=1.2, label="bar")
    axes.set_xlabel("of the speed of copying", fontsize=8)
    head(axes, "new tokens, normalized, rotated and written")
    legend(axes)


def draw_latents(axes, rows):
    """Draw what latents reach over what limits them: bandwidth with 16 query heads, products with 128, and in e4m3 the time in
    bf16."""

    def over_bar(row):
        if "over_bf16" in row and row["q_heads"] == 16:
            return row["over_bf16"] / OVER_BF16
        return row["copy_share"] / SHARE if row["q_heads"] == 16 else row["tflops"] / TFLOPS

    label = f"over {SHARE} of copying (16 heads), {TFLOPS} TFLOP/s (128), {OVER_BF16} of bf16 (e4m3)"
    over_bars(axes, rows, [over_bar(r) for r in rows], latent_bars, label, "decode over latents")


def draw_wide(axes, rows):
    """Draw what heads of 512 features reach over their bars: of the rate of narrower heads, or of copying."""
    numbers = [r["copy_share"] / WIDE_SHARE if "copy_share" in r else r["of_narrow"] / RATE for r in rows]
    label = f"over {RATE} of the TFLOP/s of heads of {NARROW}, {WIDE_SHARE:.2f} of copying (decode)"
    over_bars(axes, rows, numbers, wide_bars, label, "heads of 512 features")


def over_bars(axes, rows, numbers, bars_of, label, title):
    """Draw numbers that are multiples of each row's bar."""
    missed = [not all(met for _, met in bars_of(r)) for r in rows]
    bars(axes, [r["name"] for r in rows], numbers, missed)
    axes.axvline(1, color=LIMIT, linewidth=1.2, label="bar")
    axes.set_xlabel(label, fontsize=8)
    head(axes, title)
    legend(axes)


def draw_row(axes, rows):
    """Draw how many times as long rows of equal bits take, alone and sustained."""
    missed = [not all(met for _, met in row_bars(r)) for r in rows]
    bars(axes, [r["name"] for r in rows], [r["ratio"] for r in rows], missed)
    for place, row in enumerate(rows):
        sustained(axes, row["sustained_ratio"], place, "attn")
    limits(axes, [ROW_BARS[r["kind"]] for r in rows])
    axes.set_xlim(left=0.9)
    axes.set_xlabel("times as long", fontsize=8)
    head(axes, "rows of equal bits, over the default")
    legend(axes)


def draw_significance(axes, rows):
    draw_longer(
        axes, rows, significance_limit, "steps that say what tokens are worth, over steps that do not"
    )


def draw_context(axes, rows):
    names = [f"{row['tokens']:,} tokens" for row in rows]
    axes.barh(
        range(len(rows)),
        [row["attn"]["run_ms"] for row in rows],
        height=0.8,
        color=OTHER_FORM,
        label="a step",
    )
    bars(axes, names, [row["attention_ms"] for row in rows], label="of it attention")
    axes.set_xlabel("ms a token", fontsize=8)
    head(axes, "a model behind a long context of four bits, half of its heads streaming")
    legend(axes)


def draw_layouts(axes, rows):
    numbers = [r["slower"] for r in rows]
    draw_limited(
        axes, rows, numbers, SLOWER, "times as long", "the slowest layout, over tensors of their own"
    )


def draw_duo(axes, rows):
    """Draw the paper's results as the bar."""
    names = ("decode_memory", "prefill_memory", "decode_speed", "prefill_speed")
    labels = [f"{row['kind']}, {name.replace('_', ': ')}" for row in rows for name in names]
    figures = [row[name] for row in rows for name in names]
    reported = [bar for row in rows for bar in BARS[row["kind"]]]
    bars(axes, labels, figures, [figure < bar for figure, bar in zip(figures, reported, strict=True)])
    limits(axes, reported, label="bar: the paper's")
    axes.set_xlabel("times less", fontsize=8)
    head(axes, "some heads stream, against all keep everything")
    legend(axes)
