# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What benchmarks/engines/vllm_gpu.py makes of an engine's times, without vLLM."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the models are PyTorch's")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks/engines"))
import vllm_gpu  # noqa: E402


def test_ratios_are_of_the_same_mode():
    theirs = vllm_gpu.THEIRS

    def speed(backend, mode, prefill, decode):
        return dict(
            part="speed", backend=backend, mode=mode, prefill={"2x8": prefill}, decode={"2x4": decode}
        )

    rows = [speed(theirs, "eager", 100.0, 10.0), speed("attn", "eager", 110.0, 15.0)]
    rows += [speed("attn", "graphs", 900.0, 900.0)]
    rows += [
        dict(part="cache", backend=backend, format=format, tokens_a_second=rate)
        for backend, format, rate in ((theirs, "16 bits", 5.0), ("attn", "int8_int4", 10.0))
    ]
    rows += [
        dict(part="metadata", backend=backend, median_us=us)
        for backend, us in ((theirs, 10.0), ("attn", 12.0))
    ]
    assert vllm_gpu.ratios(rows) == {
        "eager prefill 2x8": pytest.approx(1.1),
        "eager decode 2x4": 1.5,
        f"int8_int4 of {theirs} in 16 bits": 2.0,
        "metadata us": 1.2,
    }
