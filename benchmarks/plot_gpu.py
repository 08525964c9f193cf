# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the file of `bench gpu`: a panel or more for each part that it has."""

import argparse
import functools
from pathlib import Path

from measuring.results import read, refuse
from parts.attention import DECODE_SHARE, PLAIN, slowdown_bar
from parts.batches import SUSTAINED_LEAST
from parts.sharing import COMPARISONS
from plots.backward import draw_eager, draw_gradients
from plots.graphs import (
    draw_append,
    draw_context,
    draw_diffkv,
    draw_duo,
    draw_graphs,
    draw_latents,
    draw_layouts,
    draw_outputs,
    draw_pages,
    draw_planning,
    draw_row,
    draw_significance,
    draw_wide,
)
from plots.palette import (
    COLOURS,
    LIMIT,
    MOST_SERIES,
    OTHER_FORM,
    REFERENCE,
    STYLE,
    TITLES,
    bars,
    colour,
    head,
    legend,
    limits,
    name_rows,
    save,
    sustained,
)
from plots.palette import side as contender
from plots.quantized import draw_quantized
from plots.transformers import draw_models, draw_serving

# Sides of a panel of prefill or decode, the quickest: two more are predictions and limits.
MOST_SIDES = MOST_SERIES - 2


def times(row):
    """Return milliseconds by contender; the least of several ways to call one."""
    found = {"attn": row["attn"]["run_ms"]}
    for name, milliseconds in row["peers_ms"].items():
        found[contender(name)] = min(milliseconds, found.get(contender(name), milliseconds))
    return found


def curves(rows, x, y):
    """Return points (x, y) of each contender, in the order of x; y takes a row and its milliseconds."""
    lines = {}
    for row in sorted(rows, key=x):
        for name, milliseconds in times(row).items():
            lines.setdefault(name, []).append((x(row), y(row, milliseconds)))
    return lines


def teraflops(row, milliseconds):
    return row["visited_flops"] / milliseconds / 1e9


def gigabytes(row, milliseconds):
    return row["kv_bytes"] / milliseconds / 1e6


def mask(row):
    return "causal" if row["see"] == "causal" else "full"


def panels(rows):
    """Group prefill's rows by (heads, mask), then by head size: the rows and columns of the picture."""
    grid = {}
    for row in rows:
        if row["part"] == "prefill":
            line = grid.setdefault((tuple(row["heads"]), mask(row)), {})
            line.setdefault(row["dim"], []).append(row)
    return dict(sorted(grid.items(), key=lambda item: (-item[0][0][0], item[0][1])))


def highest(rows):
    """Return the end of an axis of TFLOP/s that all panels share."""
    drawn = [teraflops(r, ms) for r in rows for ms in (*times(r).values(), r["attn"]["predicted_ms"]) if ms]
    return 1.05 * max(drawn, default=1)


def sustained_curve(rows):
    """Return TFLOP/s of attn over length, back to back."""
    return [
        (row["lengths"][0], teraflops(row, row["sustained_ms"]["attn"]))
        for row in sorted(rows, key=lambda r: r["lengths"][0])
        if "attn" in row.get("sustained_ms", {})
    ]


def quickest(rows, rate):
    """attn, and the peers that reach the highest rates at any point: the sides of all panels of a part."""
    best = {}
    for row in rows:
        for name, milliseconds in times(row).items():
            best[name] = max(best.get(name, 0), rate(row, milliseconds))
    others = sorted(best.keys() - {"attn"}, key=lambda name: -best[name])
    return ["attn", *others[: MOST_SIDES - 1]]


def draw_prefill(axes, rows, title, top, sides):
    lines = curves(rows, lambda r: r["lengths"][0], teraflops)
    for name in (name for name in sides if name in lines):
        style = {"marker": "o", "markersize": 3, "label": TITLES[name], "color": COLOURS[name]}
        axes.plot(*zip(*lines[name], strict=True), **style)
    if points := sustained_curve(rows):
        style = {"linestyle": "--", "linewidth": 1, "color": COLOURS["attn"], "label": "attn, sustained"}
        axes.plot(*zip(*points, strict=True), **style)
    predicted = [
        (r["lengths"][0], teraflops(r, r["attn"]["predicted_ms"]))
        for r in sorted(rows, key=lambda r: r["lengths"][0])
        if r["attn"]["predicted_ms"]
    ]
    if predicted:
        axes.plot(*zip(*predicted, strict=True), linestyle=":", label="attn, predicted", color=REFERENCE)
    axes.set_xscale("log", base=2)
    ticks = sorted({r["lengths"][0] for r in rows})
    axes.set_xticks(ticks, [f"{n // 1024}K" if n >= 1024 else str(n) for n in ticks])
    axes.set_ylim(0, top)
    axes.set_xlabel("tokens", fontsize=8)
    head(axes, title)
    axes.grid()


def draw_batches(axes, rows):
    """Draw the best peer's time over attn's, alone and sustained, and the bar of each."""
    shown = {"alone": ("ratio_to_best_peer", "full", "o"), "sustained": ("sustained_ratio", "none", "D")}
    for label, (name, fill, marker) in shown.items():
        there = [(r[name], i) for i, r in enumerate(rows) if r.get(name)]
        if there:
            style = {"linestyle": "none", "marker": marker, "markersize": 3.5, "fillstyle": fill}
            axes.plot(*zip(*there, strict=True), **style, color=COLOURS["attn"], label=label)
    name_rows(axes, [r["name"] for r in rows])
    axes.axvline(1, color=LIMIT, linewidth=1.2, label="bar, alone")
    axes.axvline(SUSTAINED_LEAST, color=LIMIT, linewidth=0.8, linestyle=":", label="bar, sustained")
    axes.set_xlabel("the best peer's time over attn's", fontsize=8)
    head(axes, "batches")
    legend(axes)


def draw_chunks(axes, rows):
    """Draw TFLOP/s of visited work."""
    bars(axes, [r["name"] for r in rows], [r["tflops"] for r in rows], label="attn")
    for index, row in enumerate(rows):
        for name, milliseconds in row["peers_ms"].items():
            style = {"marker": "o", "markersize": 4, "linestyle": "none", "color": colour(name)}
            axes.plot([teraflops(row, milliseconds)], [index], **style, label=TITLES[contender(name)])
    axes.set_xlabel("TFLOP/s, visited", fontsize=8)
    head(axes, "chunks behind long contexts")
    legend(axes)


def draw_features(axes, rows):
    allowed = list(map(slowdown_bar, rows))
    missed = [bool(bar) and row["slowdown"] > bar for row, bar in zip(rows, allowed, strict=True)]
    bars(axes, [r["name"] for r in rows], [r["slowdown"] for r in rows], missed, label="alone")
    limits(axes, allowed)
    for place, row in enumerate(rows):
        if row.get("sustained_slowdown"):
            sustained(axes, row["sustained_slowdown"], place, "attn")
    axes.set_xlabel("time per visited FLOP over plain causal", fontsize=8)
    head(axes, "features")
    legend(axes)


def draw_decode(axes, rows, sessions):
    # Shapes of equal bytes differ in batch and heads: marks, and a line through attn's.
    lines = curves(rows, lambda r: r["kv_bytes"], gigabytes)
    for name in quickest(rows, gigabytes):
        points = lines[name]
        style = {"linestyle": "-" if name == "attn" else "none", "marker": "o" if name == "attn" else "x"}
        axes.plot(*zip(*points, strict=True), **style, markersize=4, label=TITLES[name], color=COLOURS[name])
    copying = max(sessions[r["session"]]["copy_bytes_per_second"] for r in rows) / 1e9
    axes.axhline(copying, color=REFERENCE, linewidth=1, label="copying")
    axes.axhline(DECODE_SHARE * copying, color=LIMIT, linewidth=1.2, label=f"bar: {DECODE_SHARE} of it")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 2**30:g} GiB" if x >= 2**30 else f"{x / 2**20:g} MiB")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes of keys and values")
    axes.set_ylabel("GB/s")
    head(axes, "decode, pages of 16")
    legend(axes)
    axes.grid()


def draw_comparison(axes, rows):
    """Draw the speed-up over the baseline, its bar, and the ratio that the work allows."""
    allowed = [r["ceiling"] or 0 for r in rows]
    if any(allowed):
        style = {"fill": False, "edgecolor": REFERENCE, "linewidth": 0.7}
        axes.barh(range(len(rows)), allowed, **style, label="what work allows")
    missed = [bool(r["bar"]) and r["ratio"] < r["bar"] for r in rows]
    bars(axes, [r["name"] for r in rows], [r["ratio"] for r in rows], missed)
    limits(axes, [r["bar"] for r in rows])
    axes.set_xlabel("times as fast", fontsize=8)
    head(axes, f"{rows[0]['part']}: {rows[0]['baseline']} over the best")
    legend(axes)


def draw_cache(axes, rows, sessions):
    bars(axes, [r["name"] for r in rows], [r["bytes_per_second"] / 1e9 for r in rows])
    copying = max(sessions[r["session"]]["copy_bytes_per_second"] for r in rows) / 1e9
    axes.axvline(copying, color=REFERENCE, linewidth=1, label="copying")
    axes.set_xlabel("GB/s, read and written", fontsize=8)
    head(axes, "operations on a cache")
    legend(axes)


def draw_python(axes, rows):
    """Draw seconds to a first result, with nothing imported or compiled."""
    sides = {"attn": COLOURS["attn"], "attn, cached": OTHER_FORM, "flex": COLOURS["flex"]}
    for index, (side, shade) in enumerate(sides.items()):
        there = [(i, r["first_seconds"][side]) for i, r in enumerate(rows) if side in r["first_seconds"]]
        if there:
            at, seconds = zip(*there, strict=True)
            axes.barh(
                [i + 0.25 * (index - 1) for i in at],
                seconds,
                height=0.25,
                color=shade,
                label=TITLES.get(side, side),
            )
    name_rows(axes, [r["name"] for r in rows])
    axes.set_xscale("log")
    axes.set_xlabel("s", fontsize=8)
    head(axes, "described in Python: to the first result")
    legend(axes)


PANELS = {
    "chunks": lambda axes, rows, sessions: draw_chunks(axes, rows),
    "decode": draw_decode,
    "cache": draw_cache,
    "python": lambda axes, rows, sessions: draw_python(axes, rows),
    "backward": lambda axes, rows, sessions: draw_gradients(axes, rows),
    "shared-backward": lambda axes, rows, sessions: draw_gradients(axes, rows),
    "tree-backward": lambda axes, rows, sessions: draw_gradients(axes, rows),
    "eager": lambda axes, rows, sessions: draw_eager(axes, rows),
    "quantized": lambda axes, rows, sessions: draw_quantized(axes, rows),
    "transformers": lambda axes, rows, sessions: draw_models(axes, rows),
    "serving": lambda axes, rows, sessions: draw_serving(axes, rows),
    "graphs": lambda axes, rows, sessions: draw_graphs(axes, rows),
    "pages": lambda axes, rows, sessions: draw_pages(axes, rows),
    "diffkv": lambda axes, rows, sessions: draw_diffkv(axes, rows),
    "layouts": lambda axes, rows, sessions: draw_layouts(axes, rows),
    "duo": lambda axes, rows, sessions: draw_duo(axes, rows),
    "context": lambda axes, rows, sessions: draw_context(axes, rows),
    "significance": lambda axes, rows, sessions: draw_significance(axes, rows),
    "append": lambda axes, rows, sessions: draw_append(axes, rows),
    "mla": lambda axes, rows, sessions: draw_latents(axes, rows),
    "wide": lambda axes, rows, sessions: draw_wide(axes, rows),
    "row": lambda axes, rows, sessions: draw_row(axes, rows),
    "outputs": lambda axes, rows, sessions: draw_outputs(axes, rows),
    "planning": lambda axes, rows, sessions: draw_planning(axes, rows),
}

# Inches of a row in panels whose height follows their rows.
BY_ROW = {
    **dict.fromkeys(("backward", "shared-backward", "tree-backward", "eager"), 0.4),
    **dict.fromkeys(("quantized", "chunks", "significance", "transformers", "graphs", "duo"), 0.2),
}


def draw(sessions, rows):
    """A figure with a panel or more for each part."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update(STYLE)
    grid = panels(rows)
    prefill = [r for r in rows if r["part"] == "prefill"]
    top, sides = highest(prefill), quickest(prefill, teraflops)
    features = [r for r in rows if r["part"] == "features" and r["name"] != PLAIN and r["slowdown"]]
    compared = [part for name in COMPARISONS if (part := [r for r in rows if r["part"] == name])]
    others = [(lambda axes: draw_features(axes, features), 0)] if features else []
    for part, panel in PANELS.items():
        if some := [r for r in rows if r["part"] == part]:
            inches = 1 + len(some) * BY_ROW.get(part, 0)
            others.append((functools.partial(panel, rows=some, sessions=sessions), inches))
    lines = [others[i : i + 2] for i in range(0, len(others), 2)]
    batches = [r for r in rows if r["part"] == "batches"]
    half = -(-len(batches) // 2)
    heights = [3] * len(grid) + [max(3, *(inches for _, inches in line)) for line in lines]
    heights += [3] if compared else []
    heights += [1 + 0.15 * half] if batches else []
    dims = sorted({dim for line in grid.values() for dim in line}) or [0]
    figure = plt.figure(figsize=(5 * max(len(dims), 3), sum(heights)), layout="constrained")
    figures = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    if batches:
        halves = [some for some in (batches[:half], batches[half:]) if some]
        for axes, some in zip(figures.pop().subplots(1, len(halves), squeeze=False)[0], halves, strict=True):
            draw_batches(axes, some)
    for part, ((heads, see), line) in zip(figures, grid.items(), strict=False):
        for axes, dim in zip(part.subplots(1, len(dims), squeeze=False, sharey=True)[0], dims, strict=True):
            if dim in line:
                draw_prefill(axes, line[dim], f"d{dim} {heads[0]}/{heads[1]} {see}", top, sides)
        part.axes[0].set_ylabel("TFLOP/s, visited")
        legend(part.axes[-1], part.axes)
    if compared:
        for axes, part in zip(
            figures[-1].subplots(1, len(compared), squeeze=False)[0], compared, strict=True
        ):
            draw_comparison(axes, part)
    for part, line in zip(figures[len(grid) :], lines, strict=False):
        for axes, (panel, _) in zip(part.subplots(1, len(line), squeeze=False)[0], line, strict=True):
            panel(axes)
    last = list(sessions.values())[-1]
    figure.suptitle(
        f"{last['device']}, {last['id'][:10]}, attn {last['commit'][:8]}, PyTorch {last['torch']}"
    )
    return figure


def main(argv=None):
    parser = argparse.ArgumentParser(prog="plot_gpu", description=__doc__)
    parser.add_argument("file", type=Path, help="what bench gpu --json wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the picture: .svg, .png or .pdf")
    args = parser.parse_args(argv)
    sessions, rows = read(args.file)
    if not rows:
        refuse(f"{args.file} has no rows", "there is nothing to draw")
    save(draw(sessions, list(rows.values())), args.output)
    print(f"drawn: {args.output}")


if __name__ == "__main__":
    main()
