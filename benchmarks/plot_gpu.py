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
    draw_context,
    draw_diffkv,
    draw_duo,
    draw_graphs,
    draw_layouts,
    draw_outputs,
    draw_pages,
    draw_planning,
    draw_significance,
)
from plots.quantized import draw_quantized
from plots.transformers import draw_models, draw_serving

COLOURS = {
    "attn": "#d62728",
    "cudnn": "#2ca02c",
    "flash": "#1f77b4",
    "flex": "#9467bd",
    "flashinfer": "#ff7f0e",
    "flash4": "#17becf",
}
NEUTRAL = "#7f7f7f"


def contender(name):
    """A peer by its first word: how it had to be fed is in the file, not in the picture."""
    return name.split(",")[0]


def times(row):
    """Milliseconds by contender; of several ways to feed one the quickest."""
    found = {"attn": row["attn"]["run_ms"]}
    for name, milliseconds in row["peers_ms"].items():
        found[contender(name)] = min(milliseconds, found.get(contender(name), milliseconds))
    return found


def curves(rows, x, y):
    """Points (x, y) of each contender, in the order of x; y takes a row and its milliseconds."""
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
    """Prefill's rows by (heads, mask), then by head size: the rows and columns of the picture."""
    grid = {}
    for row in rows:
        if row["part"] == "prefill":
            line = grid.setdefault((tuple(row["heads"]), mask(row)), {})
            line.setdefault(row["dim"], []).append(row)
    return dict(sorted(grid.items(), key=lambda item: (-item[0][0][0], item[0][1])))


def highest(rows):
    """Where an axis of TFLOP/s that all panels share ends."""
    drawn = [teraflops(r, ms) for r in rows for ms in (*times(r).values(), r["attn"]["predicted_ms"]) if ms]
    return 1.05 * max(drawn, default=1)


def sustained_curves(rows):
    """TFLOP/s over length back to back: of attn, and of the best peer."""
    lines = {}
    for row in sorted(rows, key=lambda r: r["lengths"][0]):
        times = dict(row.get("sustained_ms", {}))
        if "attn" in times:
            ours = times.pop("attn")
            both = {"attn": ours, "the best peer": min(times.values(), default=None)}
            for name, milliseconds in both.items():
                if milliseconds:
                    point = row["lengths"][0], teraflops(row, milliseconds)
                    lines.setdefault(f"{name}, sustained", []).append(point)
    return lines


def draw_prefill(axes, rows, title, top):
    for name, points in curves(rows, lambda r: r["lengths"][0], teraflops).items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=COLOURS.get(name))
    for name, points in sustained_curves(rows).items():
        axes.plot(
            *zip(*points, strict=True),
            linestyle="--",
            linewidth=1,
            label=name,
            color=COLOURS.get(contender(name), "black"),
        )
    predicted = [
        (r["lengths"][0], teraflops(r, r["attn"]["predicted_ms"]))
        for r in sorted(rows, key=lambda r: r["lengths"][0])
        if r["attn"]["predicted_ms"]
    ]
    if predicted:
        axes.plot(*zip(*predicted, strict=True), linestyle=":", label="attn, predicted", color=NEUTRAL)
    axes.set_xscale("log", base=2)
    ticks = sorted({r["lengths"][0] for r in rows})
    axes.set_xticks(ticks, [f"{n // 1024}K" if n >= 1024 else str(n) for n in ticks])
    axes.set_ylim(0, top)
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)


def draw_batches(axes, rows):
    """The best peer's time over attn's; red where a bar is missed."""
    shown = {
        "alone": ("ratio_to_best_peer", 1, "none"),
        "sustained": ("sustained_ratio", SUSTAINED_LEAST, "full"),
    }
    for label, (name, bar, fill) in shown.items():
        for good in (True, False):
            there = [(r[name], i) for i, r in enumerate(rows) if r.get(name) and (r[name] >= bar) == good]
            if there:
                style = {"linestyle": "none", "marker": "o", "markersize": 4, "fillstyle": fill}
                colour = COLOURS["cudnn" if good else "attn"]
                axes.plot(*zip(*there, strict=True), **style, color=colour, label=label if good else None)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(SUSTAINED_LEAST, color="black", linewidth=0.5, linestyle=":")
    axes.set_title("batches: the best peer's time over attn's; hollow: alone, filled: sustained", fontsize=8)
    axes.grid(alpha=0.3, axis="x")


def draw_chunks(axes, rows):
    """TFLOP/s of visited work; a mark is FlashInfer's."""
    axes.barh([r["name"] for r in rows], [r["tflops"] for r in rows], color=COLOURS["attn"])
    for index, row in enumerate(rows):
        for milliseconds in row["peers_ms"].values():
            rate = row["visited_flops"] / milliseconds / 1e9
            axes.plot([rate] * 2, [index - 0.4, index + 0.4], color="black")
    axes.tick_params(axis="y", labelsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s, visited", fontsize=8)
    axes.set_title("chunks behind long contexts; a mark: FlashInfer", fontsize=9)


def draw_features(axes, rows):
    colours = [colour(r["slowdown"], slowdown_bar(r)) for r in rows]
    axes.barh([r["name"] for r in rows], [r["slowdown"] for r in rows], color=colours)
    for index, bar in enumerate(map(slowdown_bar, rows)):
        if bar:
            axes.plot([bar] * 2, [index - 0.4, index + 0.4], color="black")
    sustained = [(r["sustained_slowdown"], i) for i, r in enumerate(rows) if r.get("sustained_slowdown")]
    if sustained:
        axes.plot(*zip(*sustained, strict=True), linestyle="none", marker="o", markersize=4, color="black")
    axes.axvline(1, color="black", linewidth=0.5)
    axes.invert_yaxis()
    axes.set_title("time per visited FLOP over plain causal; line: the bar, dot: sustained", fontsize=9)


def colour(slowdown, bar):
    return NEUTRAL if bar is None else COLOURS["attn"] if slowdown > bar else COLOURS["cudnn"]


def draw_decode(axes, rows, sessions):
    # Shapes of equal bytes differ in batch and heads: marks, and a line through attn's.
    for name, points in curves(rows, lambda r: r["kv_bytes"], gigabytes).items():
        style = {"linestyle": "-" if name == "attn" else "none", "marker": "o" if name == "attn" else "x"}
        axes.plot(*zip(*points, strict=True), **style, markersize=4, label=name, color=COLOURS.get(name))
    copying = max(sessions[r["session"]]["copy_bytes_per_second"] for r in rows) / 1e9
    axes.axhline(copying, color="black", linewidth=0.8, label="copying")
    axes.axhline(
        DECODE_SHARE * copying, color="black", linewidth=0.8, linestyle=":", label=f"{DECODE_SHARE} of it"
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 2**30:g} GiB" if x >= 2**30 else f"{x / 2**20:g} MiB")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes of keys and values")
    axes.set_ylabel("GB/s")
    axes.set_title("decode, pages of 16", fontsize=9)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def draw_comparison(axes, rows):
    """How many times as fast as the baseline; black: the bar; hollow: what the work allows."""
    names = [r["name"] for r in rows]
    axes.barh(names, [r["ceiling"] or 0 for r in rows], fill=False, edgecolor=NEUTRAL, linewidth=0.5)
    missed = [r["bar"] and r["ratio"] < r["bar"] for r in rows]
    axes.barh(
        names,
        [r["ratio"] for r in rows],
        color=[COLOURS["attn" if bad else "cudnn"] for bad in missed],
        height=0.6,
    )
    for index, row in enumerate(rows):
        if row["bar"]:
            axes.plot([row["bar"]] * 2, [index - 0.4, index + 0.4], color="black")
    axes.axvline(1, color="black", linewidth=0.5)
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
    axes.set_title(f"{rows[0]['part']}: {rows[0]['baseline']} over the best", fontsize=9)


def draw_cache(axes, rows, sessions):
    axes.barh(
        [r["name"] for r in rows],
        [r["bytes_per_second"] / 1e9 for r in rows],
        color=COLOURS["attn"],
        height=0.6,
    )
    copying = max(sessions[r["session"]]["copy_bytes_per_second"] for r in rows) / 1e9
    axes.axvline(copying, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("GB/s, read and written")
    axes.set_title("operations on a cache; black: copying", fontsize=9)


def draw_python(axes, rows):
    """Seconds to a first result, from knowing nothing."""
    sides = {"attn": COLOURS["attn"], "attn, cached": "#f4a6a6", "flex": COLOURS["flex"]}
    for index, (side, shade) in enumerate(sides.items()):
        there = [(i, r["first_seconds"][side]) for i, r in enumerate(rows) if side in r["first_seconds"]]
        if there:
            at, seconds = zip(*there, strict=True)
            axes.barh([i + 0.25 * (index - 1) for i in at], seconds, height=0.25, color=shade, label=side)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows], fontsize=7)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("s")
    axes.set_title("described in Python: to the first result", fontsize=9)
    axes.legend(fontsize=7)


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
    "outputs": lambda axes, rows, sessions: draw_outputs(axes, rows),
    "planning": lambda axes, rows, sessions: draw_planning(axes, rows),
}

BY_ROW = [PANELS[part] for part in ("backward", "shared-backward", "tree-backward", "eager")]


def draw(sessions, rows, path):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    grid = panels(rows)
    top = highest([r for r in rows if r["part"] == "prefill"])
    features = [r for r in rows if r["part"] == "features" and r["name"] != PLAIN and r["slowdown"]]
    compared = [part for name in COMPARISONS if (part := [r for r in rows if r["part"] == name])]
    others = [(lambda axes: draw_features(axes, features), 0)] if features else []
    for part, panel in PANELS.items():
        if some := [r for r in rows if r["part"] == part]:
            drawn_by_row = len(some) if panel in BY_ROW else 0
            others.append((functools.partial(panel, rows=some, sessions=sessions), drawn_by_row))
    lines = [others[i : i + 2] for i in range(0, len(others), 2)]
    batches = [r for r in rows if r["part"] == "batches"]
    half = -(-len(batches) // 2)
    heights = [3] * len(grid) + [max(3, 1 + 0.35 * max(count for _, count in line)) for line in lines]
    heights += [3] if compared else []
    heights += [1 + 0.15 * half] if batches else []
    dims = sorted({dim for line in grid.values() for dim in line}) or [0]
    figure = plt.figure(figsize=(4 * max(len(dims), 3), sum(heights)), layout="constrained")
    figures = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    if batches:
        halves = [some for some in (batches[:half], batches[half:]) if some]
        for axes, some in zip(figures.pop().subplots(1, len(halves), squeeze=False)[0], halves, strict=True):
            draw_batches(axes, some)
    for part, ((heads, see), line) in zip(figures, grid.items(), strict=False):
        for axes, dim in zip(part.subplots(1, len(dims), squeeze=False, sharey=True)[0], dims, strict=True):
            if dim in line:
                draw_prefill(axes, line[dim], f"d{dim} {heads[0]}/{heads[1]} {see}", top)
        part.axes[0].set_ylabel("TFLOP/s, visited")
        part.axes[0].legend(fontsize=7, loc="lower right")
    if compared:
        for axes, part in zip(
            figures[-1].subplots(1, len(compared), squeeze=False)[0], compared, strict=True
        ):
            draw_comparison(axes, part)
    for part, line in zip(figures[len(grid) :], lines, strict=False):
        for axes, (panel, _) in zip(part.subplots(1, len(line), squeeze=False)[0], line, strict=True):
            panel(axes)
    last = list(sessions.values())[-1]
    figure.suptitle(f"{last['device']}, {last['id'][:10]}, attn {last['commit']}, PyTorch {last['torch']}")
    figure.savefig(path)
    plt.close(figure)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="plot_gpu", description=__doc__)
    parser.add_argument("file", type=Path, help="what bench gpu --json wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the picture: .svg, .png or .pdf")
    args = parser.parse_args(argv)
    sessions, rows = read(args.file)
    if not rows:
        refuse(f"{args.file} has no rows", "there is nothing to draw")
    draw(sessions, list(rows.values()), args.output)
    print(f"drawn: {args.output}")


if __name__ == "__main__":
    main()
