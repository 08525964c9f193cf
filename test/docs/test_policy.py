# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-policy.md adds, and the page's test of it."""

import os
import re
import subprocess
import sys

import pytest
from attnlab import BUILD, ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")
PAGE = ROOT / "docs/adding-a-policy.md"


def test_page(tmp_path):
    parts = re.findall(r"^`tiers\.py`[^\n]*:\n```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)
    assert len(parts) == 2
    (tmp_path / "tiers.py").write_text("\n\n".join(parts))
    environment = dict(os.environ, PYTHONPATH=str(BUILD / "python"), ATTN_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tiers.py"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^2 passed", result.stdout.splitlines()[-1]), result.stdout
