# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/support.md and README.md say which GPU takes what as the compiler says it."""

import sys

import pytest
from attnlab import ROOT

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
sys.path.insert(0, str(ROOT / "tools"))
import support  # noqa: E402


def test_the_pages_say_what_the_compiler_says(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["support.py", str(tmp_path)])
    support.main()
    for page in ("docs/support.md", "README.md"):
        assert (tmp_path / page).read_text() == (ROOT / page).read_text(), "run tools/support.py"


def test_what_the_compiler_refuses_is_no():
    right = support.text({}, "forward")
    wide = right.replace("128xbf16", "264xbf16").replace("dim = 128", "dim = 264")
    assert support.compile_all([right, wide, right], "sm_90a") == [True, False, True]
