# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws files of `bench distributed`: how many times as fast several GPUs are as one with attn, as a share
of their number, beside PyTorch and ring-flash-attn."""

import argparse
import json
from pathlib import Path

from plots.palette import COLOURS, OTHER_FORM, REFERENCE, STYLE, THIRD_FORM, head, legend, save

# Sides of a panel, with the colour and the name of their line.
FORMS = {
    "all_gather": (COLOURS["attn"], "attn, all-gather"),
    "ring": (OTHER_FORM, "attn, ring"),
    "heads": (THIRD_FORM, "attn, heads"),
    "PyTorch context_parallel, cudnn": (COLOURS["cudnn"], "PyTorch, cuDNN"),
    "ring-flash-attn, zigzag": (COLOURS["flash"], "ring-flash-attn"),
}
FOREST = {
    "all_gather, balanced": (COLOURS["attn"], "attn, all-gather"),
    "ring, balanced": (OTHER_FORM, "attn, ring"),
}
DECODE = {
    "by tokens": (COLOURS["attn"], "attn, by tokens"),
    "by heads": (OTHER_FORM, "attn, by heads"),
}
PANELS = (
    ("prefill", "prefill of", False, FORMS),
    ("training", "forward and gradients of", True, FORMS),
    ("forest", "16 responses, with gradients, to a prompt of", True, FOREST),
    ("decode", "a step of decoding", None, DECODE),
)


def points(reports, part, gradients):
    """Return {(side, point): {ranks: times as fast as one GPU}}; a later report replaces an earlier one's."""
    found = {}
    for report in reports:
        for row in report["rows"]:
            kind = row["part"], row.get("gradients")
            if kind == (part, gradients) and row.get("times_one") and not row.get("ordered"):
                sequences, tokens = row.get("sequences"), row.get("prompt", row["tokens"])
                found.setdefault((row["side"], sequences, tokens), {})[report["ranks"]] = row["times_one"]
    return found


def size(tokens):
    """Format a power of two of tokens."""
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K"


def draw(axes, title, found, sides):
    """Draw a line of each side; dashes are of fewer tokens. Sides of different points say theirs in the legend."""
    most = max((ranks for line in found.values() for ranks in line), default=2)
    axes.axhline(1, color=REFERENCE, linewidth=1, label="linear")
    named = sides is DECODE
    for side, (colour, name) in sides.items():
        lines = sorted((key[2] * (key[1] or 1), key, line) for key, line in found.items() if key[0] == side)[
            -2:
        ]
        for index, (_, (_, sequences, tokens), line) in enumerate(lines):
            xs, last = sorted(line), index == len(lines) - 1
            words = f"{sequences} x {size(tokens)}" if sequences else size(tokens)
            label = f"{name}, {words}" if named else name if last else None
            ys = [1, *(line[x] / x for x in xs)]
            style = dict(
                marker="o", markersize=3, linewidth=1.4, color=colour, linestyle="-" if last else "--"
            )
            axes.plot([1, *xs], ys, label=label, **style)
    axes.set_xticks([ranks for ranks in (1, 2, 4, 8) if ranks <= most])
    axes.set_ylim(bottom=min(axes.get_ylim()[0], 0.8))
    axes.grid(axis="y")
    axes.set_xlabel("GPUs", fontsize=8)
    axes.set_ylabel("times as fast as attn on one, over GPUs", fontsize=8)
    most_tokens = max((key[2] for key in found), default=0)
    head(axes, title if named else f"{title} {size(most_tokens)} tokens; dashed: fewer")
    legend(axes)


def draw_scaling(reports):
    """Return a figure of reports of `bench distributed` on numbers of one kind of GPU."""
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, grid = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
        for axes, (part, title, gradients, sides) in zip(grid.flat, PANELS, strict=True):
            draw(axes, title, points(reports, part, gradients), sides)
    return figure


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="JSON of bench distributed")
    parser.add_argument("--out", type=Path, required=True, metavar="SVG")
    args = parser.parse_args(argv)
    reports = [json.loads(path.read_text()) for path in args.files]
    for path, report in zip(args.files, reports, strict=True):
        if report.get("benchmark") != "distributed":
            parser.error(
                f"{path} is of bench {report.get('benchmark')}; this draws files of bench distributed"
            )
    import matplotlib

    matplotlib.use("svg")
    save(draw_scaling(reports), args.out)


if __name__ == "__main__":
    main()
