# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The term that docs/adding-a-visibility.md adds, forward and backward, in plans of the host and of the device."""

import os
import shutil
import subprocess
import sys

import pytest
from apply_page import apply
from attnlab import BUILD, ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")
COMPILER = BUILD / "test" / "docs" / "visibility" / "libattn_compiler.so.0"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if not COMPILER.exists():
        pytest.skip("the page's compiler is not built: ninja -C build attn-compiler-chunk")
    folder = tmp_path_factory.mktemp("chunk")
    shutil.copytree(ROOT / "python" / "attn", folder / "python" / "attn")
    for built in (BUILD / "python" / "attn").glob("_attn*.so"):
        shutil.copy(built, folder / "python" / "attn")
    (folder / "python" / "attn" / COMPILER.name).symlink_to(COMPILER)
    changed = apply(ROOT / "docs/adding-a-visibility.md", ROOT, folder, under="python/")
    assert changed == ["python/attn/describe/visibility.py"]
    return folder / "python"


SEEN = ["sink(8) | chunk(40, 70) & causal()", "chunk(8, 16)", "causal() & chunk(64, 3)"]


@pytest.mark.parametrize("see", SEEN if os.environ.get("ATTN_FULL") else SEEN[:1])
def test_the_term_of_the_page(package, see):
    environment = dict(os.environ, PYTHONPATH=str(package), ATTN_CACHE_DIR=str(package / "cache"))
    command = [sys.executable, ROOT / "test" / "support" / "seen.py", see]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{see} is right\n"
