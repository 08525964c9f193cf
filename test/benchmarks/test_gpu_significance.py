# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` for significance, as far as no GPU is needed: tiny steps on the host device."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from parts import significance  # noqa: E402
from parts.quantized import MANY_BYTES  # noqa: E402
from parts.significance import (  # noqa: E402
    LONG_PROMPT,
    PROMPT_LIMIT,
    PROMPT_ROWS,
    PromptPoint,
    SignificancePoint,
    launches_of_steps,
    measure_significance,
    significance_line,
)


def test_points():
    points = PARTS["significance"](False)
    assert len({point.key for point in points}) == len(points)
    quick = PARTS["significance"](True)
    assert [point.format for point in quick] == ["bf16", "K8V4", "K4V2", "bf16"]
    assert isinstance(quick[-1], PromptPoint) and quick[-1].weighed.significance_rows == PROMPT_ROWS
    steps = [point for point in points if not isinstance(point, PromptPoint)]
    assert all(point.kv_bytes() >= MANY_BYTES for point in steps if not point.name.endswith(", 16 x 8192"))
    assert Clock.work(points[0]) == points[0].seconds() and "worth" in heading(points[0])
    assert len(points[0].problems()) == 2


def tiny_bench(monkeypatch):
    monkeypatch.setattr(significance, "recorded", lambda torch, run: run)
    times = {"with": 1.1, "without": 1.0}

    def alone(runs):
        return {name: times[name] for name, run in runs.items() if run() is not None}

    timer = types.SimpleNamespace(alone=alone, sustained=lambda runs, *others: alone(runs))
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer, device="cpu"))


@pytest.mark.parametrize("format,limit", significance.LIMITS.items())
def test_a_tiny_step(monkeypatch, format, limit):
    point = SignificancePoint(format, 2, 70, q_heads=16)
    row = measure_significance(point, tiny_bench(monkeypatch))
    assert row["longer"] == pytest.approx(1.1) and row["name"] in line(row) == significance_line(row)
    assert 0 < row["error"] <= 2e-2
    assert bars(row, {}) == [] and row["kv_bytes"] < MANY_BYTES
    text = f"{limit} times as long at most"
    assert bars(row | {"kv_bytes": MANY_BYTES}, {}) == [(text, limit > 1.1)]
    assert bars(row | {"kv_bytes": MANY_BYTES, "longer": 1.21}, {}) == [(text, False)]


@pytest.mark.parametrize("store", ["dense", "paged<16>"])
def test_a_tiny_prompt(monkeypatch, store):
    point = PromptPoint("bf16", 2, 150, q_heads=16, store=store)
    row = measure_significance(point, tiny_bench(monkeypatch))
    assert row["name"] == f"prompt, bf16, 2 x 150, 16/8 heads, {store}" and 0 < row["error"] <= 1e-2
    text = f"{PROMPT_LIMIT} times as long at most"
    assert bars(row, {}) == []
    assert bars(row | {"prompt": LONG_PROMPT}, {}) == [(text, False)]
    assert bars(row | {"prompt": LONG_PROMPT, "longer": 1.02}, {}) == [(text, True)]


def test_launches():
    """Launches are grouped into two steps; a foreign kernel between them belongs to neither."""
    event = lambda name, start, end: types.SimpleNamespace(  # noqa: E731
        name=name, time_range=types.SimpleNamespace(start=start, end=end)
    )
    events = [
        event("attention_merge", 101, 132),
        event("attention_rows16", 100, 130),
        event("attention_weigh", 102, 136),
        event("elementwise_kernel", 137, 139),
        event("attention_rows16", 140, 171),
        event("attention_merge", 142, 172),
        event("attention_weigh", 142, 178),
    ]
    found = launches_of_steps(events)
    assert found == {"rows": [0, 30.5], "merge": [1.5, 32], "weigh": [2, 37]}
    row = {"name": "x", "attn": {"run_ms": 1.0}, "without_ms": 1.0, "longer": 1.0, "sustained_longer": 1.0}
    text = significance_line(row | {"launches_us": {"with": found}})
    assert text.endswith("with     ends, us: rows 30.5, merge 32.0, weigh 37.0")
    assert launches_of_steps([]) == {}


def test_a_weight_that_is_wrong(monkeypatch):
    """It is not timed."""
    monkeypatch.setattr(significance, "ERROR", 1e-9)
    with pytest.raises(RuntimeError, match="differs from float32"):
        measure_significance(SignificancePoint("bf16", 1, 50, q_heads=8), tiny_bench(monkeypatch))
