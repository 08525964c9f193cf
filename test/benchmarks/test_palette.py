# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures take their colours from one palette, in which a colour has one meaning."""

import re

from attnlab import ROOT
from plots import palette


def test_a_colour_has_one_meaning():
    colours = [
        *palette.COLOURS.values(),
        palette.OTHER_FORM,
        palette.THIRD_FORM,
        palette.REFERENCE,
        palette.LIMIT,
    ]
    assert len(set(colours)) == len(colours)
    assert palette.COLOURS.keys() == palette.TITLES.keys()


def test_pictures_name_no_colours_of_their_own():
    named = re.compile(r"""["']#[0-9a-f]{6}["']|color="(?!white)\w+\"""")
    pictures = [ROOT / "benchmarks/plot_gpu.py", *(ROOT / "benchmarks/plots").glob("*.py")]
    found = {f"{path.name}: {line}" for path in pictures for line in named.findall(path.read_text())}
    assert {line.partition(":")[0] for line in found} == {"palette.py"}


def test_a_side_is_known_by_its_first_word():
    assert palette.colour("cudnn, heads expanded") == palette.COLOURS["cudnn"]
    assert palette.colour("attn, cached") == palette.colour("replicated") == palette.OTHER_FORM
    assert palette.title("flash, heads expanded") == "PyTorch's FlashAttention-2"
