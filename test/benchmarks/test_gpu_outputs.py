# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` for two outputs, as far as no GPU is needed: a tiny sequence on the host device."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from parts import outputs  # noqa: E402
from parts.outputs import OutputsPoint, measure_outputs, outputs_line, outputs_runs  # noqa: E402


def test_points():
    points = PARTS["outputs"](False)
    assert len({point.key for point in points}) == len(points) == 8
    assert [point.key for point in PARTS["outputs"](True)] == ["outputs: 4096 tokens, 32/8 heads of 128"]
    assert Clock.work(points[0]) == points[0].seconds() and "streaming" in heading(points[0])


def test_a_tiny_sequence(monkeypatch):
    monkeypatch.setattr(outputs, "SINK", 16)
    monkeypatch.setattr(outputs, "RECENT", 32)
    times = {"both": 1.1, "full": 1.0}
    timer = types.SimpleNamespace(
        alone=lambda runs: {name: times[name] for name, run in runs.items() if run() is not None}
    )
    bench = types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer))
    point = OutputsPoint(200, q_heads=4, kv_heads=2, dim=64, device="host")
    row = measure_outputs(point, bench)
    assert row["longer"] == pytest.approx(1.1) and row["name"] in line(row) == outputs_line(row)
    assert bars(row, {}) == [("1.15 times as long at most", True)]
    assert bars(row | {"longer": 1.16}, {}) == [("1.15 times as long at most", False)]
    assert bars(row | {"tokens": 8192}, {}) == []
    assert bars(row | {"tokens": 16384}, {}) == [("1.05 times as long at most", False)]


def test_both_see_what_they_are_said_to(monkeypatch):
    """The second output against one that sees a sink and recent tokens."""
    monkeypatch.setattr(outputs, "SINK", 16)
    monkeypatch.setattr(outputs, "RECENT", 32)
    torch.manual_seed(0)
    point = OutputsPoint(150, q_heads=2, kv_heads=2, dim=64, device="host")
    given = []
    monkeypatch.setattr(
        torch,
        "randn",
        lambda *size, made=torch.randn, **named: given.append(made(*size, **named)) or given[-1],
    )
    out, lse, near, near_lse = outputs_runs(torch, point)["both"]()
    q, k, v = (x[0].transpose(0, 1).double() for x in given)
    row, column = torch.arange(150)[:, None], torch.arange(150)
    seen = (column <= row) & ((column < 16) | (column > row - 32))
    scores = (q @ k.transpose(1, 2) * 64**-0.5).masked_fill(~seen, -torch.inf)
    expected = (scores.softmax(-1) @ v).transpose(0, 1)
    torch.testing.assert_close(near.double(), expected, rtol=2e-2, atol=2e-2)
