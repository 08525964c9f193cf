# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of results: words apart and inside, a few series a panel, names and units on axes, colours of the palette."""

import json

import pytest
from attnlab import ROOT

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
import matplotlib  # noqa: E402
import plot_gpu  # noqa: E402
from matplotlib import colors  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from measuring.results import read  # noqa: E402
from plots import loss, palette, scaling, updates  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PICTURES = sorted(path.name for path in RESULTS.glob("*.svg"))


def files():
    """The newest results of each part, and those that have pictures."""
    newest = {name.replace(".svg", ".json"): name.replace(".svg", ".json") for name in PICTURES}
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        if found.get("benchmark") == "gpu":
            newest |= {row["part"]: path.name for row in found["rows"]}
    return sorted(set(newest.values()))


PALETTE = {
    *palette.COLOURS.values(),
    *(shade for pair in (palette.INK, palette.LINE, palette.EMPTY, palette.PAPER) for shade in pair),
    palette.OTHER_FORM,
    palette.THIRD_FORM,
    palette.REFERENCE,
}


def undrawn(axis):
    """Words of ticks beyond the ends of an axis: matplotlib keeps them and draws none."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    slack = 1e-6 * (high - low)
    gone = [tick for tick in ticks if not low - slack <= tick.get_loc() <= high + slack]
    return {label for tick in gone for label in (tick.label1, tick.label2)}


def texts(figure):
    """(left, bottom, right, top, words) of what is drawn, in pixels."""
    figure.canvas.draw()
    gone = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in undrawn(axis)}
    found = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in gone:
            box = text.get_window_extent()
            if box.width > 0 and box.height > 0:
                found.append((box.x0, box.y0, box.x1, box.y1, text.get_text()))
    return found


def overlapping(boxes, slack=1.0):
    found, boxes = [], sorted(boxes)
    for i, (_, bottom, right, top, words) in enumerate(boxes):
        for left, low, _, high, other in boxes[i + 1 :]:
            if left >= right - slack:
                break
            if low < top - slack and bottom < high - slack:
                found.append((words, other))
    return found


def shown_axes(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def check(figure):
    boxes = texts(figure)
    assert not overlapping(boxes), overlapping(boxes)[:5]
    width, height = figure.get_size_inches() * figure.dpi
    outside = [b[4] for b in boxes if b[0] < 0 or b[1] < 0 or b[2] > width + 1 or b[3] > height + 1]
    assert not outside, outside[:5]
    for axes in shown_axes(figure):
        if not axes.has_data():
            continue
        labels = {each for each in axes.get_legend_handles_labels()[1] if not each.startswith("_")}
        assert len(labels) <= palette.MOST_SERIES, labels
        assert axes.get_xlabel(), axes.get_title()
        numbers = set(axes.get_xticklabels()) - undrawn(axes.xaxis)
        assert len(numbers) >= 2, axes.get_title()
        legend = axes.get_legend()
        if legend:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent().padded(-2)), (
                "a legend on curves"
            )
        for artist in [*axes.lines, *axes.patches]:
            shades = [artist.get_color()] if hasattr(artist, "get_color") else [artist.get_facecolor()]
            for shade in shades:
                red, green, blue, opacity = colors.to_rgba(shade)
                assert opacity == 0 or colors.to_hex((red, green, blue)) in PALETTE, colors.to_hex(shade)


def figure_of(path):
    """Draw a file of `bench gpu` or of `bench real`, or all of `bench distributed` by the number of GPUs."""
    found = json.loads(path.read_text())
    if found["benchmark"] == "distributed":
        paths = sorted(
            RESULTS.glob("*-distributed-*.json"), key=lambda p: p.stem.split("-distributed-")[::-1]
        )
        return scaling.draw_scaling([json.loads(each.read_text()) for each in paths])
    if found["benchmark"] == "real":
        of_training = all(row["part"] == "training" for row in found["rows"])
        return (updates if of_training else loss).draw(found["rows"])
    matplotlib.rcParams.update(palette.STYLE)
    sessions, rows = read(path)
    return plot_gpu.draw(sessions, list(rows.values()))


@pytest.mark.parametrize("name", files())
def test_results_can_be_drawn(name, tmp_path):
    figure = figure_of(RESULTS / name)
    check(figure)
    palette.save(figure, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "prefers-color-scheme: dark" in text and f"fill: {palette.PAPER[0]}" in text


def test_what_overlaps_is_found():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, 1], color=palette.COLOURS["attn"])
    axes.set_xlabel("s")
    check(figure)
    axes.text(0.5, 0.5, "words")
    axes.text(0.51, 0.5, "other words")
    with pytest.raises(AssertionError, match="other words"):
        check(figure)
    plt.close(figure)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_of_their_results(name, tmp_path):
    """Today's code draws them from the file that they stand beside."""
    source = RESULTS / name.replace(".svg", ".json")
    palette.save(figure_of(source), tmp_path / name)
    drawn, kept = ((folder / name).read_text() for folder in (tmp_path, RESULTS))
    words = [[line.strip() for line in text.splitlines() if "<!--" in line] for text in (drawn, kept)]
    assert words[0] == words[1] and len(words[0]) > 10
