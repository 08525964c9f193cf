# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench real` measures, with a downloaded model on the CPU; without the model it skips by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "13_real_model"))
import smollm2  # noqa: E402


def test_real(tmp_path):
    if absent := smollm2.missing():
        pytest.skip(absent)
    file, size = tmp_path / "real.json", ["--tokens", "64"]
    if os.environ.get("ATTN_FULL"):
        size = ["--tokens", "256"]
    command = [sys.executable, str(ROOT / "benchmarks" / "real.py"), "formats", "--json", str(file), *size]
    result = subprocess.run(
        [*command, "--formats", "K8V8", "K2V4"], capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr
    rows = {row["format"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == ["16 bits", "K8V8", "K2V4"]
    assert rows["16 bits"]["kl"] == 0 and 0 < rows["K8V8"]["kl"] < rows["K2V4"]["kl"]
    assert rows["K2V4"]["token_bytes"] < rows["K8V8"]["token_bytes"] < rows["16 bits"]["token_bytes"]
    assert rows["K8V8"]["perplexity"] < rows["K2V4"]["perplexity"]
