# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-format-of-blocks.md says: its test runs, and without its change there is no such format."""

import os
import re
import subprocess
import sys

from apply_page import apply
from attnlab import BUILD, ROOT
from page_library import package_over

PAGE = ROOT / "docs/adding-a-format-of-blocks.md"
LIBRARY = BUILD / "test/docs/blocks/libattn_compiler.so.0"


def run(folder, package, *arguments):
    environment = dict(os.environ, PYTHONPATH=str(package), ATTN_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def write_test(folder):
    text = re.search(r"^`test_nvfp4\.py`:\n```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)[1]
    (folder / "test_nvfp4.py").write_text(text)
    return "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nvfp4.py"


def test_page(tmp_path):
    result = run(tmp_path, BUILD / "python", *write_test(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout


def test_nothing_else_knows_the_format(tmp_path):
    package_over(LIBRARY, tmp_path / "python")
    apply(PAGE, ROOT, tmp_path, under="python/", reverse=True)
    others = run(tmp_path, tmp_path / "python", *write_test(tmp_path), "-k", "others")
    assert others.returncode == 0, others.stdout + others.stderr
    ask = "import attn; attn.Spec(q_heads=8, kv_heads=2, head_dim=64, kv=[attn.Paged(key='nvfp4')]).mlir()"
    refused = run(tmp_path, tmp_path / "python", "-c", ask)
    assert "'mxfp4', or None" in refused.stderr and refused.returncode == 1, refused.stderr
    text = "f4e2m1fn per 16 by f8e4m3fn"
    ask = f"from attn import _attn; _attn.store_tensors(store='packed', heads=1, key_dim=64, value_dim=64, key={text!r}, value='bf16')"
    refused = run(tmp_path, tmp_path / "python", "-c", ask)
    assert "f4e2m1fn per 16" in refused.stderr and refused.returncode == 1, refused.stderr


def test_files():
    """As few as the page says."""
    files = re.findall(r"^```diff\n--- (.*)$", PAGE.read_text(), flags=re.M)
    assert len(files) == len(set(files)) == 6
