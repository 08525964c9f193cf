# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`bench distributed` as far as no GPU is needed: gloo ranks and a few hundred tokens."""

import json
import subprocess
import sys

import pytest
from attnlab import ROOT
from ranks import FULL


@pytest.mark.skipif(not FULL, reason="starts two processes that import PyTorch: part of --full")
def test_all_parts_run_on_the_host_device(tmp_path):
    found = tmp_path / "found.json"
    command = [sys.executable, ROOT / "benchmarks" / "distributed.py", "--ranks", "2", "--json", found]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = json.loads(found.read_text())["rows"]
    parts = {"links", "prefill", "training", "documents", "forest", "decode", "ordered"}
    assert {row["part"] for row in rows} == parts and not any("error" in row for row in rows)
    assert all(row.get("ms", 1) > 0 for row in rows)
    sides = {row["side"] for row in rows if row["part"] == "prefill"}
    assert sides == {"one GPU", "all_gather", "ring", "heads"}
