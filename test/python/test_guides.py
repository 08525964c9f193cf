# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python of README, docs and tutorials runs: all blocks of a page, one after the other, in one process for each
page. A block of text after a block of Python is its output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import same_pictures, skip_without_packages, without_tests

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("examples/*/*.md"))]


MARK = "\x1e"  # printed between blocks


def blocks(page):
    """Return (code, the page's output or None) of every block."""
    pattern = r"^```python\n(.*?)^```(?:\n+```text\n(.*?)^```)?"
    return [
        (found[1], found[2])
        for found in re.finditer(pattern, without_tests(page.read_text()), flags=re.M | re.S)
    ]


RUN = [page for page in PAGES if blocks(page)]
LONG = [ROOT / "examples/06_head_classes/tutorial.md"]  # trains a model for more than a minute


def test_every_example_has_a_page():
    for example in sorted((ROOT / "examples").glob("*_*")):
        assert any(page.parent == example for page in RUN), example.name


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page, tmp_path):
    if page in LONG and not os.environ.get("ATTN_FULL"):
        pytest.skip("trains a model: part of --full")
    script = f"print({MARK!r}, end='')\n".join(code for code, _ in blocks(page))
    skip_without_packages(script)
    paths = [os.environ.get("PYTHONPATH"), str(page.parent)]  # modules of the lesson
    result = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,  # a lesson trains a model
        stdin=subprocess.DEVNULL,
        env=dict(os.environ, HF_HUB_OFFLINE="1", PYTHONPATH=os.pathsep.join(filter(None, paths))),
    )
    assert result.returncode == 0, result.stderr
    for printed, (code, shown) in zip(result.stdout.split(MARK), blocks(page), strict=True):
        assert shown is None or printed == shown, code
    same_pictures(page, tmp_path)


def test_there_are_outputs():
    assert sum(shown is not None for page in RUN for _, shown in blocks(page)) > 1


LINKING = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("examples/*/*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
    for target, anchor in re.findall(r"\]\(([^)#:\s]*\.md|)#([^)]+)\)", page.read_text()):
        text = ((page.parent / target) if target else page).read_text()
        titles = [
            re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, flags=re.M)
        ]
        assert anchor in titles, f"{target}#{anchor}"
