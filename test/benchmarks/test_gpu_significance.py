# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` for significance, as far as no GPU is needed: tiny steps on the host device."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gpu_significance  # noqa: E402
from gpu_measure import Clock, heading, line  # noqa: E402
from gpu_points import PARTS, bars  # noqa: E402
from gpu_quantized import MANY_BYTES  # noqa: E402
from gpu_significance import SignificancePoint, measure_significance, significance_line  # noqa: E402


def test_points():
    points = PARTS["significance"](False)
    assert len({point.key for point in points}) == len(points)
    assert [point.format for point in PARTS["significance"](True)] == ["bf16", "K8V4", "K4V2"]
    assert all(point.kv_bytes() >= MANY_BYTES for point in points if not point.name.endswith(", 16 x 8192"))
    assert Clock.work(points[0]) == points[0].seconds() and "worth" in heading(points[0])
    assert len(points[0].problems()) == 2


def tiny_bench(monkeypatch):
    monkeypatch.setattr(gpu_significance, "recorded", lambda torch, run: run)
    times = {"with": 1.1, "without": 1.0}

    def alone(runs):
        return {name: times[name] for name, run in runs.items() if run() is not None}

    timer = types.SimpleNamespace(alone=alone, sustained=lambda runs, *others: alone(runs))
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer, device="cpu"))


@pytest.mark.parametrize("format,limit", gpu_significance.LIMITS.items())
def test_a_tiny_step(monkeypatch, format, limit):
    point = SignificancePoint(format, 2, 70, q_heads=16)
    row = measure_significance(point, tiny_bench(monkeypatch))
    assert row["longer"] == pytest.approx(1.1) and row["name"] in line(row) == significance_line(row)
    assert 0 < row["error"] <= 2e-2
    assert bars(row, {}) == [] and row["kv_bytes"] < MANY_BYTES
    text = f"{limit} times as long at most"
    assert bars(row | {"kv_bytes": MANY_BYTES}, {}) == [(text, limit > 1.1)]
    assert bars(row | {"kv_bytes": MANY_BYTES, "longer": 1.21}, {}) == [(text, False)]


def test_a_weight_that_is_wrong(monkeypatch):
    """It is not timed."""
    monkeypatch.setattr(gpu_significance, "ERROR", 1e-9)
    with pytest.raises(RuntimeError, match="differs from float32"):
        measure_significance(SignificancePoint("bf16", 1, 50, q_heads=8), tiny_bench(monkeypatch))
