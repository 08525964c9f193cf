# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every SVG of the project keeps to: colours of the palette, words that do not overlap, axes with numbers."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
_found = importlib.util.spec_from_file_location("drawing", ROOT / "python/attn/describe/drawing.py")
drawing = importlib.util.module_from_spec(_found)  # also where the package is not built
_found.loader.exec_module(drawing)

# Fonts: the widest that a viewer may take, over the size.
CHARACTER = {"monospace": 0.602, "sans": 0.56}
HEIGHT = 0.8  # of a line of digits and letters, over the size
OTHERS = {colour for pair in (drawing.INK, drawing.LINE, drawing.EMPTY, drawing.PAPER) for colour in pair}
MOST_SERIES = 6


def local(element):
    return element.tag.rpartition("}")[2]


def placed(element, x=0.0, y=0.0):
    """(element, x, y) of all that is drawn, and how far it is moved."""
    found = re.match(r"translate\(([-\d.]+)[, ]([-\d.]+)\)", element.get("transform", ""))
    if found:
        x, y = x + float(found[1]), y + float(found[2])
    yield element, x, y
    for child in element:
        yield from placed(child, x, y)


def text_boxes(root):
    """(left, top, right, bottom, words) of each text."""
    inherited = root.get("font-family", "monospace")
    found = []
    for element, x, y in placed(root):
        if local(element) != "text" or not element.text:
            continue
        size = float(element.get("font-size"))
        family = element.get("font-family", inherited)
        of_character = CHARACTER["monospace" if family == "monospace" else "sans"]
        if element.get("font-weight") in ("bold", "600"):
            of_character *= 1.0 if family == "monospace" else 1.05
        width = of_character * size * len(element.text)
        left = x + float(element.get("x"))
        left -= {"start": 0, "middle": width / 2, "end": width}[element.get("text-anchor", "start")]
        bottom = y + float(element.get("y"))
        found.append((left, bottom - HEIGHT * size, left + width, bottom, element.text))
    return found


def overlaps(boxes, slack=0.5):
    """Pairs of words that lie over one another."""
    found, boxes = [], sorted(boxes)
    for i, (_, top, right, bottom, words) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            if other[0] >= right - slack:
                break
            if other[1] < bottom - slack and top < other[3] - slack:
                found.append((words, other[4]))
    return found


def colours(root):
    """Those of all shapes and words."""
    found = set()
    for element in root.iter():
        found |= {element.get(name) for name in ("fill", "stroke")} - {None, "none"}
    return found


def series(root):
    """Colours of series that shapes are filled with."""
    return {e.get("fill") for e in root.iter() if local(e) in ("rect", "path")} & set(drawing.COLOURS)


def ticks(root):
    """Texts that are numbers."""
    return [box for box in text_boxes(root) if re.fullmatch(r"\d[\d.]*", box[4])]


def check(svg, numbers=4):
    """Check a picture whose axes have so many numbers at least; gives its root."""
    root = ElementTree.fromstring(svg)
    width, height = (float(root.get(name)) for name in ("width", "height"))
    boxes = text_boxes(root)
    assert not overlaps(boxes), overlaps(boxes)[:5]
    outside = [b for b in boxes if b[0] < 0 or b[1] < 0 or b[2] > width + 0.5 or b[3] > height]
    assert not outside, outside[:5]
    assert colours(root) <= set(drawing.COLOURS) | OTHERS, colours(root) - set(drawing.COLOURS) - OTHERS
    assert len(series(root)) <= MOST_SERIES
    assert len(ticks(root)) >= numbers, "an axis has no numbers"
    return root
