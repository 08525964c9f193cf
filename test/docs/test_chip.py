# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-chip.md changes: the page's test, run over the compiler library that its diff makes, and ptxas."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from attnlab import BUILD, ROOT
from page_library import package_over

PAGE = ROOT / "docs/adding-a-chip.md"
LIBRARY = BUILD / "test/docs/chip/libattn_compiler.so.0"


def test_page(tmp_path):
    package_over(LIBRARY, tmp_path / "python")
    text = re.search(r"^`test_orin\.py`:\n```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)[1]
    (tmp_path / "test_orin.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orin.py"]
    environment = dict(
        os.environ, PYTHONPATH=str(tmp_path / "python"), ATTN_CACHE_DIR=str(tmp_path / "cache")
    )
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout


def test_its_code_assembles(tmp_path):
    if not shutil.which("ptxas"):
        pytest.skip("there is no ptxas")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARY.parent))
    example = ROOT / "examples/01_paged_decode/decode.mlir"
    command = [BUILD / "bin/attn-opt", example, "--target=sm_87", "--emit=ptx", "-o", tmp_path / "k.ptx"]
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert ".target sm_87" in (tmp_path / "k.ptx").read_text()
    assemble = ["ptxas", "-arch=sm_87", "-o", tmp_path / "k.cubin", tmp_path / "k.ptx"]
    subprocess.run(assemble, check=True, timeout=120)
