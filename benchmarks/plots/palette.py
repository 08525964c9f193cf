# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The colours of all pictures. One colour has one meaning: a side that was measured, or the hardware, or a limit."""

COLOURS = {
    "attn": "#0072b2",
    "cudnn": "#009e73",
    "flashinfer": "#e69f00",
    "flash4": "#cc79a7",
    "flash": "#8c6bb1",
    "flex": "#a6611a",
    "sdpa": "#b8860b",
}
# attn in another form: without sharing, eager, from a cache.
OTHER_FORM = "#8ec3e6"
# What the hardware does, what the cost model says, and what a function that does nothing takes.
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


def side(name):
    """A side by the first word of its name: how it had to be fed is in the file, not in the picture."""
    return name.partition(",")[0]


def colour(name):
    return COLOURS.get(side(name), OTHER_FORM)


def title(name):
    return TITLES.get(side(name), name)


def legend(axes, outside=True):
    """Each label once, below the panel, where no curve is."""
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    shown = [label for label in dict.fromkeys(labels)]
    if shown:
        axes.legend(
            [first[label] for label in shown],
            shown,
            fontsize=7,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=min(3, len(shown)),
            frameon=False,
        )
