# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's builder of a step's metadata beside that of vLLM's FLASH_ATTN: benchmarks/engines/vllm_metadata.py.

It runs where ATTN_VLLM_PYTHON names an interpreter that has vLLM, as `./dev test --full` does."""

import json
import os
import subprocess

import pytest
from compared import BUILT, PYTHON, ROOT, need_vllm

need_vllm()
DRIVER = BUILT.parent / "test" / "runtime" / "fake" / "libfakecuda.so"
SCHEDULE = "get_scheduler_metadata, not timed"
LAUNCHES = {
    "FA2, FA4": [],
    "FA3": [SCHEDULE],
    "FA3, full graphs": [SCHEDULE, "copy_", "fill_"],
    "attn": ["copy_", "copy_", "kernel of attn"],
}


@pytest.mark.skipif(
    not DRIVER.exists(), reason="the tests' CUDA driver is not built: ninja -C build fakecuda"
)
def test_both_builders_are_timed(tmp_path):
    """Launches are exact. Bounds of times are loose, for a machine with other work."""
    file = tmp_path / "metadata.json"
    command = [
        PYTHON,
        ROOT / "benchmarks/engines/vllm_metadata.py",
        "--rounds",
        "5",
        "--builds",
        "50",
        "--json",
        file,
    ]
    done = subprocess.run(
        command, env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(file.read_text())
    assert (report["sequences"], report["layers"], report["versions"]["vllm"]) == (256, 32, "0.32.0")
    by_step = {}
    for row in report["rows"]:
        by_step.setdefault(row["step"], {})[row["side"]] = row
    assert list(by_step) == ["256 decode", "248 decode, 8 prompts of 256"]
    for sides in by_step.values():
        assert {side: row["launches"] for side, row in sides.items()} == LAUNCHES
        assert sides["attn"]["attn_over"] == 1
        assert 0 < sides["FA3, full graphs"]["attn_over"] < 3
        assert sides["FA2, FA4"]["median_us"] < sides["FA3, full graphs"]["median_us"]
