# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every Python block of docs/python runs, page by page from the top, and prints the output on the page."""

import contextlib
import io
import re

import pytest
from attnlab import ROOT
from pages import same_pictures, skip_without_packages

PAGES = sorted((ROOT / "docs" / "python").glob("*.md"))


def blocks(page):
    """Return (language, text, line) of every fenced block."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def test_there_are_some():
    assert "description.md" in [page.name for page in PAGES]


def test_the_engine_is_sixty_lines():
    page = ROOT / "docs" / "python" / "serving.md"
    loops = [text for language, text, _ in blocks(page) if language == "python" and "def run(" in text]
    assert [len(text.splitlines()) <= 60 for text in loops] == [True]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    skip_without_packages("\n".join(text for language, text, _ in blocks(page) if language == "python"))
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    printed = ""
    for language, text, line in blocks(page):
        if language == "python":
            assert not printed, (
                f"{page.name}:{line}: the block before printed what no text block shows: {printed}"
            )
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text":
            assert printed == text, f"{page.name}:{line}"
            printed = ""
    assert not printed
    same_pictures(page, tmp_path)
