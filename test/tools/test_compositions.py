# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/compositions.md says what the compiler says."""

import sys

import pytest
from attnlab import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
sys.path.insert(0, str(ROOT / "tools"))
import compositions  # noqa: E402


def test_the_page(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["compositions.py", str(page)])
    compositions.main()
    assert page.read_text() == (ROOT / "docs/compositions.md").read_text(), "run tools/compositions.py"
