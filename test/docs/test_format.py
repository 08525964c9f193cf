# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-format.md changes, from the compiler library to Python: the page's test, run over both."""

import os
import re
import subprocess
import sys

from apply_page import apply
from attnlab import BUILD, ROOT
from page_library import package_over

PAGE = ROOT / "docs/adding-a-format.md"
LIBRARY = BUILD / "test/docs/format/libattn_compiler.so.0"


def test_page(tmp_path):
    package_over(LIBRARY, tmp_path / "python")
    changed = apply(PAGE, ROOT, tmp_path, under="python/")
    assert "python/attn/memory/formats.py" in changed
    text = re.search(r"^`test_e3m4\.py`:\n```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)[1]
    (tmp_path / "test_e3m4.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_e3m4.py"]
    environment = dict(
        os.environ, PYTHONPATH=str(tmp_path / "python"), ATTN_CACHE_DIR=str(tmp_path / "cache")
    )
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout
