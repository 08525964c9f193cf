# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every link of a page to a file of the repository leads to an existing file and heading."""

import re
from pathlib import Path

import pytest
from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^()\s]+)\)")


def prose(text):
    """Return a page without its code."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text):
    """Return the anchors of a page's headings, as the hosts of repositories make them."""
    titles = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page, text):
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if name and not path.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(text if path == page else path.read_text()):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("name", tracked("*.md"))
def test_links(name):
    assert list(broken(ROOT / name, (ROOT / name).read_text())) == []


def test_broken_links_are_found():
    text = "# A heading: `x`, y\n[1](README.md) [2](NONE.md) [3](#a-heading-x-y) [4](#b) [5](https://x.y) `[6](z)`\n"
    assert list(broken(ROOT / "page.md", text)) == ["NONE.md: no such file", "#b: no such heading"]
