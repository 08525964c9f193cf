# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` for small problems, as far as no GPU is needed: a tiny one on the host device."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from parts import eager  # noqa: E402
from parts.eager import CALLS, EMPTY, OURS, EagerPoint, eager_line, empty_function, measure_eager  # noqa: E402


def test_points():
    points = PARTS["eager"](False)
    assert len({point.key for point in points}) == len(points) == 6
    assert [point.key for point in PARTS["eager"](True)] == ["eager: 16 x 197, 12/12 d64 full"]
    assert points[2].name == "8 x 1024 on 77, 16/16 d64 full"
    assert Clock.work(points[0]) == points[0].seconds() and "host" in heading(points[0])


def test_a_tiny_problem(monkeypatch):
    for name, value in {"WARM": 2, "QUEUED": 2, "ROUNDS": 2, "SECONDS": 0.01}.items():
        monkeypatch.setattr(eager, name, value)

    def fake(torch, name, causal):
        if name == "flash":
            return [(name, lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v))]
        return [(name, lambda q, k, v: 1 / 0)]

    monkeypatch.setattr(eager, "ways", fake)
    bench = types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch))
    row = measure_eager(EagerPoint(2, 5, 5, 2, 2, 64, device="host"), bench)
    for kind in CALLS:
        assert set(row["host_us"][kind]) == set(row["back_to_back_us"][kind]) == {OURS, "flash", EMPTY}
        assert row["ratio_to_best_peer"][kind] == pytest.approx(
            row["back_to_back_us"][kind]["flash"] / row["back_to_back_us"][kind][OURS]
        )
    assert set(row["declined"]) == {"cudnn", "flash4"}
    assert row["name"] in line(row) == eager_line(row)


def test_bars():
    us = {"forward": {OURS: 14.0}, "recorded": {OURS: 20.0}, "both": {OURS: 61.0}}
    row = {
        "part": "eager",
        "host_us": us,
        "ratio_to_best_peer": {"forward": 1.0, "recorded": 0.5, "both": 0.9},
    }
    assert bars(row, {}) == [
        ("15 us of the host at most, forward", True),
        ("60 us of the host at most, both", False),
        ("forward back to back as fast as the best peer", True),
        ("both back to back as fast as the best peer", False),
    ]
    alone = row | {"ratio_to_best_peer": dict.fromkeys(CALLS)}
    assert len(bars(alone, {})) == 2


def test_the_function_that_does_nothing_has_gradients():
    given = [torch.ones(2, 3, requires_grad=True) for _ in range(3)]
    assert len(torch.autograd.grad(empty_function(torch)(*given).sum(), given)) == 3
