# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page on several GPUs prints on two ranks what it shows, as test_pages.py finds on one."""

import contextlib
import io
import re

import pytest
from attnlab import ROOT
from ranks import run_ranks

PAGE = ROOT / "docs" / "python" / "distributed.md"


def printed(rank, blocks):
    """Return what the page's code prints, block by block."""
    names, found = {"__name__": "page"}, []
    for code in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        found.append(out.getvalue())
    return "".join(found)


pytest.importorskip("transformers")


def test_the_page_prints_the_same_on_two_ranks(tmp_path):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)
    code = [text for language, text in blocks if language == "python"]
    shown = "".join(text for language, text in blocks if language == "text")
    assert shown and run_ranks(2, printed, code, tmp_path=tmp_path) == [shown, shown]
