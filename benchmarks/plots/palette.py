# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The colours and marks of all pictures. One colour has one meaning: a side that was measured, the hardware or a model of it,
or a limit. One mark has one meaning, too."""

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
# A bar that a figure must reach or keep.
LIMIT = "#111111"

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


def bars(axes, names, values, missed=(), **style):
    """Draw a bar of attn for each name from the top down; hatched if it misses its bar."""
    drawn = axes.barh(range(len(values)), values, height=0.6, color=COLOURS["attn"], **style)
    for index, bar in enumerate(drawn):
        if index < len(missed) and missed[index]:
            bar.set_hatch("////")
            bar.set_edgecolor("white")
            bar.set_label(MISSED)
    name_rows(axes, names)


def name_rows(axes, names):
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(alpha=0.3, axis="x")
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
        markerfacecolor="white",
        markeredgecolor=colour(name),
        label="sustained",
    )


def head(axes, words):
    """Set the title of a panel, wrapped to its width."""
    axes.set_title(textwrap.fill(words, 60), fontsize=9)


def hosts(axes, value, place, height):
    """Draw the host's time from one call to the next, inside the bar of the call."""
    style = {"color": "white", "edgecolor": REFERENCE, "linewidth": 0.4}
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
