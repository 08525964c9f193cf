# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/engines/sglang_gpu.py on a CPU, in an interpreter that has SGLang: a tiny model answers in both backends.

It runs where ATTN_SGLANG_PYTHON names that interpreter, as `./dev test --full` does."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"
PYTHON = os.environ.get("ATTN_SGLANG_PYTHON")
if not PYTHON:
    why = os.environ.get("ATTN_WITHOUT_SGLANG") or "ATTN_SGLANG_PYTHON names no Python with SGLang"
    pytest.skip(f"{why}: ./dev test --full makes build/sglang-env", allow_module_level=True)
if not (BUILT / "attn" / "libattn_compiler.so.0").exists():
    pytest.skip("the extension is not built", allow_module_level=True)


def test_a_tiny_model_answers_in_both_backends(tmp_path):
    file = tmp_path / "found.json"
    command = [PYTHON, ROOT / "benchmarks/engines/sglang_gpu.py", "tokens", "speed", "--json", file]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(file.read_text())
    assert not report["failures"] and report["versions"]["sglang"]
    _, ours, control, *speeds = report["rows"]
    # A step of 16 bits may part answers only where the choice was close.
    assert ours["backend"] == "attn" and all(gap < 0.05 for gap in ours["gaps"])
    assert control["backend"] == "control" and control["differs"]
    assert [row["backend"] for row in speeds] == ["torch_native", "attn"]
    assert all(row["prefill"]["2x48"] > 0 and row["decode"]["4x24"] > 0 for row in speeds)
    assert set(report["ratios"]) == {"eager prefill 2x48", "eager decode 4x24"}
