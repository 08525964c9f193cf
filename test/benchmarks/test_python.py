# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package against FlexAttention: that both sides compute the same, and what becomes of their times."""

import os

import pytest
from benchlab import FakeRun, bench_of, fake_start

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attnlab import BUILD  # noqa: E402
from catalogue import bars  # noqa: E402
from parts.python import NAMES, PythonPoint, measure_python, python_line, start  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))


@pytest.mark.skipif(
    not (BUILD / "python" / "attn" / "libattn_compiler.so.0").exists(), reason="no package is built"
)
@pytest.mark.parametrize("name", NAMES if FULL else NAMES[:2])
def test_both_sides_compute_the_same(name, tmp_path):
    """On the CPU, with few tokens; a window of 1,024 sees them all, so its mask is compared with more of them."""
    bench, _ = bench_of(FakeRun(), tmp_path, start=start)
    row = measure_python(PythonPoint(name, tokens=1300 if "window" in name else 200, device="cpu"), bench)
    assert row["difference"] <= 0.03 and not row["declined"]
    assert row["first_seconds"]["attn, cached"] > 0 and row["first_seconds"]["attn"] > 0


def test_what_is_said_of_a_row(tmp_path):
    bench, _ = bench_of(FakeRun(), tmp_path)
    row = measure_python(PythonPoint("softcap"), bench)
    assert all(good for _, good in bars(row, {})) and len(bars(row, {})) == 2
    assert "x1.50" in python_line(row)
    row["run_ms"]["attn"] = 2.0
    assert [good for _, good in bars(row, {})] == [True, False]


def test_a_side_that_fails_is_declined_and_wrong_results_are_refused(tmp_path):
    def no_flex(side, *arguments):
        if side == "flex":
            raise RuntimeError("python: causal: flex: no Triton")
        return fake_start(side, *arguments)

    bench, _ = bench_of(FakeRun(), tmp_path, start=no_flex)
    row = measure_python(PythonPoint("causal"), bench)
    assert "no Triton" in row["declined"]["flex"] and bars(row, {}) == []
    python_line(row)

    def differs(side, point, caches, result):
        report = fake_start(side, point, caches, result)
        torch.save(torch.full((3,), float(side == "flex")), result)
        return report

    bench, _ = bench_of(FakeRun(), tmp_path, start=differs)
    with pytest.raises(RuntimeError, match="differ by 1"):
        measure_python(PythonPoint("causal"), bench)
