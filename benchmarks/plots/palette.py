# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The colours and marks of all pictures. One colour has one meaning: a side that was measured, the hardware or a model of it,
or a limit. One mark has one meaning, too.

Colours of sides and of the page are those of python/attn/describe/drawing.py; test/lint/test_pictures.py compares them."""

import io
import textwrap

COLOURS = {
    "attn": "#0072b2",
    "cudnn": "#009e73",
    "flashinfer": "#e69f00",
    "flash4": "#cc79a7",
    "flash": "#8c6bb1",
    "flex": "#a6611a",
    "sdpa": "#b2abd2",
}
# attn in another form: without sharing, eager, from a cache; and in a third form.
OTHER_FORM = "#8ec3e6"
THIRD_FORM = "#c6dff0"
# Grey is for limits and models of the hardware: copying, floors, ratios of bytes, predictions, a function
# that does nothing.
REFERENCE = "#7f7f7f"
# Words, lines, and the page: on a light screen and on a dark one.
INK, LINE, EMPTY, PAPER = (
    ("#1f2328", "#e6edf3"),
    ("#6e7781", "#9198a1"),
    ("#f2f2f2", "#21262d"),
    ("#ffffff", "#0d1117"),
)
# A bar that a figure must reach or keep.
LIMIT = INK[0]
# Series of a panel at most, limits and models of the hardware among them.
MOST_SERIES = 6

TITLES = {
    "attn": "attn",
    "cudnn": "cuDNN",
    "flashinfer": "FlashInfer",
    "flash4": "FlashAttention-4",
    "flash": "PyTorch's FlashAttention-2",
    "flex": "PyTorch's FlexAttention",
    "sdpa": "PyTorch's SDPA",
}
MISSED = "misses its bar"


def side(name):
    """Return a side by the first word of its name: the file, not the picture, says how it was called."""
    return name.partition(",")[0]


def colour(name):
    """Return the colour of a peer or of attn; "attn, cached" and names of no library are attn in another form."""
    return OTHER_FORM if name.startswith("attn,") else COLOURS.get(side(name), OTHER_FORM)


def title(name):
    return name if name.startswith("attn,") else TITLES.get(side(name), name)


def bars(axes, names, values, missed=(), label=None):
    """A bar of attn for each name from the top down; hatched where it misses its bar."""
    fails = [index < len(missed) and bool(missed[index]) for index in range(len(values))]
    for failed, of_all in ((False, label), (True, MISSED)):
        there = [(index, value) for index, value in enumerate(values) if fails[index] == failed]
        if there:
            style = {"hatch": "////", "edgecolor": PAPER[0]} if failed else {}
            axes.barh(*zip(*there, strict=True), height=0.6, color=COLOURS["attn"], label=of_all, **style)
    name_rows(axes, names)


def name_rows(axes, names):
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def limits(axes, values, height=0.8, label="bar"):
    """Draw the bar of each row; None without a bar."""
    for index, value in enumerate(values):
        if value:
            axes.plot(
                [value] * 2, [index - height / 2, index + height / 2], color=LIMIT, linewidth=1.2, label=label
            )


def sustained(axes, value, place, name):
    """Draw a figure of runs back to back."""
    axes.plot(
        [value],
        [place],
        marker="D",
        markersize=3.5,
        linestyle="none",
        color=colour(name),
        markerfacecolor=PAPER[0],
        markeredgecolor=colour(name),
        label="sustained",
    )


def head(axes, words):
    """Set the title of a panel, wrapped to its width."""
    axes.set_title(textwrap.fill(words, 60), fontsize=9)


def hosts(axes, value, place, height):
    """Draw the host's time between two calls, inside the bar of the call."""
    style = {"color": PAPER[0], "edgecolor": REFERENCE, "linewidth": 0.4}
    axes.barh(place, value, height=height, **style, label="the host")


def legend(axes, of=None):
    """Draw each label once, beside the panel, away from curves; of several panels beside the last."""
    found = [one.get_legend_handles_labels() for one in of or [axes]]
    handles = [handle for some, _ in found for handle in some]
    labels = [label for _, some in found for label in some]
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    shown = [label for label in dict.fromkeys(labels) if not label.startswith("_")]
    if shown:
        axes.legend(
            [first[label] for label in shown], shown, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1)
        )


STYLE = {
    "text.color": INK[0],
    "axes.labelcolor": INK[0],
    "axes.edgecolor": LINE[0],
    "axes.facecolor": PAPER[0],
    "figure.facecolor": PAPER[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "grid.color": LINE[0],
    "grid.alpha": 0.3,
    "hatch.color": PAPER[0],
    "legend.edgecolor": LINE[0],
    "legend.facecolor": PAPER[0],
    "legend.framealpha": 1,
    "svg.hashsalt": "attn",
}
"""matplotlib's settings."""

DARK = (
    "<style>@media (prefers-color-scheme: dark) {"
    + "".join(
        f'[style*="{kind}: {light}"] {{{kind}: {dark} !important}} '
        for light, dark in (INK, LINE, PAPER)
        for kind in ("fill", "stroke")
    )
    + "}</style>"
)


def save(figure, path):
    """Write a picture and close it; an SVG is dark on a dark screen and the same bytes every time."""
    import matplotlib.pyplot as plt

    plt.close(figure)
    if path.suffix != ".svg":
        figure.savefig(path)
        return
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    head, begin, body = text.getvalue().partition("<defs>")
    path.write_text(head + DARK + "\n" + begin + body, encoding="utf-8")
