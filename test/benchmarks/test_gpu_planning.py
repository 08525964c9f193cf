# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that plans on the GPU, as far as none is needed: tiny steps are planned on the host device."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import planning  # noqa: E402
from parts.planning import PlanningPoint, measure_planning, planning_line  # noqa: E402


def test_points():
    points = PARTS["planning"](False)
    assert len({point.key for point in points}) == len(points) == 7
    assert [point.key for point in PARTS["planning"](True)] == ["planning: 256 sequences of 64 to 8192"]
    lengths = points[0].lengths
    assert (min(lengths), max(lengths), len(set(lengths))) == (64, 8192, 256)
    assert Clock.work(points[0]) == points[0].seconds() and "plan" in heading(points[0])


def test_a_tiny_step(monkeypatch):
    report.import_attn()
    monkeypatch.setattr(planning, "plan_time", lambda torch, step: step.plan() and 0.004)
    ran = []

    def alone(functions):
        for name, function in functions.items():
            function()
            ran.append(name)
        return {"device": 1.1, "host": 1.0}

    point = PlanningPoint("tiny", (40, 3, 70), q_heads=4, kv_heads=2, dim=64, device="host")
    bench = types.SimpleNamespace(
        contest=types.SimpleNamespace(torch=torch, timer=types.SimpleNamespace(alone=alone))
    )
    row = measure_planning(point, bench)
    assert ran == ["device", "host"] and row["tasks"] >= 6 and row["sequences"] == 3
    assert 0 < row["host_plan_us"] < 1e6 and "by the host" in line(row)
    assert row["name"] in line(row) == planning_line(row) and "4.0 us" in line(row) and "x1.100" in line(row)
    assert bars(row, {}) == [("10 us a plan", True), ("attention 2 % slower at most", False)]
    assert bars(row | {"plan_ms": 0.011, "host_plan_ms": 1.08}, {}) == [
        ("10 us a plan", False),
        ("attention 2 % slower at most", True),
    ]
