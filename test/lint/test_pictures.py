# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every picture of the repository: colours of one palette, words that do not overlap, numbers on axes, light and dark."""

import re
from xml.etree import ElementTree

import pictures
import pytest
from attnlab import ROOT
from plots import palette
from tracked import tracked

PICTURES = tracked("*.svg", "*.png", "*.jpg", "*.gif")
# matplotlib's: words are outlines, and test/benchmarks/test_plots.py checks them where they are drawn.
PLOTS = [name for name in PICTURES if name.startswith("benchmarks/results/")]
DRAWN = [name for name in PICTURES if name not in PLOTS]
SIDES = {*palette.COLOURS.values(), palette.OTHER_FORM, palette.THIRD_FORM, palette.REFERENCE}


def test_there_are_some_and_all_are_svg():
    assert len(DRAWN) >= 5 and len(PLOTS) >= 1
    assert all(name.endswith(".svg") for name in PICTURES)


@pytest.mark.parametrize("name", DRAWN)
def test_words_axes_and_colours(name):
    pictures.check((ROOT / name).read_text(), numbers=8)


@pytest.mark.parametrize("name", PLOTS)
def test_plots_have_colours_of_the_palette(name):
    text = (ROOT / name).read_text()
    style, _, rest = text.partition("</style>")
    found = set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", rest))
    assert found <= SIDES | pictures.OTHERS, found - SIDES - pictures.OTHERS
    assert palette.COLOURS["attn"] in found and "prefers-color-scheme: dark" in style


@pytest.mark.parametrize("name", DRAWN)
def test_light_and_dark(name):
    """A picture follows its viewer, or stands there twice."""
    twin = name.replace("light", "dark") if "light" in name else name.replace("dark", "light")
    assert "prefers-color-scheme: dark" in (ROOT / name).read_text() or (twin != name and twin in PICTURES)


def test_one_palette():
    """The package, the benchmarks and the runtime have the same colours."""
    header = (ROOT / "runtime/src/picture/Svg.h").read_text()
    for name in ("INK", "LINE", "EMPTY", "PAPER"):
        pair = getattr(pictures.drawing, name)
        assert getattr(palette, name) == pair
        (found,) = re.findall(
            rf"\*{'lines' if name == 'LINE' else name.lower()}\[\] = \{{([^}}]*)\}}", header
        )
        assert tuple(re.findall(r"#[0-9a-f]{6}", found)) == pair
    (found,) = re.findall(r"\*colours\[\] = \{([^}]*)\}", header)
    of_runtime = tuple(re.findall(r"#[0-9a-f]{6}", found))
    assert of_runtime and of_runtime == pictures.drawing.COLOURS[: len(of_runtime)]
    assert set(pictures.drawing.COLOURS) < set(palette.COLOURS.values())
    assert f'pale = "{pictures.drawing.PALE}"' in header
    assert len(set(palette.COLOURS.values())) == len(palette.COLOURS), "a colour of two sides"
    assert palette.MOST_SERIES == pictures.MOST_SERIES == len(pictures.drawing.COLOURS) == len(of_runtime) + 1


def svg(*parts):
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">{"".join(parts)}</svg>'


def words(x, y, text, **more):
    more = {"font-family": "monospace", "font-size": "10", "text-anchor": "start", **more}
    return (
        f'<text x="{x}" y="{y}" {" ".join(f"{name}={value!r}" for name, value in more.items())}>{text}</text>'
    )


@pytest.mark.parametrize(
    "drawn,message",
    [
        ([words(10, 20, "one"), words(22, 24, "two")], "one.*two"),
        ([words(10, 20, "one"), f'<g transform="translate(5,0)">{words(10, 21, "two")}</g>'], "one.*two"),
        ([words(90, 20, "beyond")], "beyond"),
        ([words(10, 20, "1"), '<rect fill="#ff0000"/>'], "#ff0000"),
        ([words(10, 20, "none")], "an axis has no numbers"),
        ([words(10, 20, "1")], None),
        ([words(10, 20, "1"), words(22, 20, "2", **{"text-anchor": "end"})], None),
    ],
)
def test_what_is_wrong_is_found(drawn, message):
    if message is None:
        pictures.check(svg(*drawn), numbers=1)
        return
    with pytest.raises(AssertionError, match=message):
        pictures.check(svg(*drawn), numbers=1)


def test_numbers_are_counted():
    root = ElementTree.fromstring(svg(words(10, 20, "1.5"), words(40, 20, "x 2"), words(10, 40, "30")))
    assert len(pictures.ticks(root)) == 2
