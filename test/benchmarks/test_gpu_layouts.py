# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that reads tensors as engines lay them, as far as no GPU is needed: tiny ones on the host."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import layouts  # noqa: E402
from parts.layouts import LayoutPoint, layouts_line, measure_layouts  # noqa: E402


def bench(seconds):
    """A bench whose timer runs each side once, and finds the second one slow."""

    def alone(functions):
        for function in functions.values():
            function()
        return {name: seconds[min(i, len(seconds) - 1)] for i, name in enumerate(functions)}

    timer = types.SimpleNamespace(alone=alone)
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer))


def test_points():
    points = PARTS["layouts"](False)
    assert len({point.key for point in points}) == len(points) == 6
    assert [point.kind for point in PARTS["layouts"](True)] == ["decode", "prefill"]
    assert Clock.work(points[0]) == points[0].seconds() and "layouts" in heading(points[0])


def test_pools_are_strided():
    k, v = torch.randn(2, 3, 16, 2, 8)
    found = layouts.pools(torch, k, v)
    assert len({(keys.stride(), values.stride()) for keys, values in found.values()}) == len(found) == 5
    for keys, values in found.values():
        assert torch.equal(keys, k) and torch.equal(values, v)


@pytest.mark.parametrize(
    "store,rows,layouts", [("paged<16>", 1, 4), ("paged<64>", None, 4), ("packed", None, 1)]
)
def test_tiny_tensors(store, rows, layouts):
    report.import_attn()
    point = LayoutPoint("tiny", (70, 70), rows, store, q_heads=4, kv_heads=2, dim=64, device="host")
    row = measure_layouts(point, bench([2.0, 3.0, 2.0]))
    assert row["attn"] == {"run_ms": 2.0} and row["slower"] == 1.5 and len(row["layouts_ms"]) == layouts
    assert row["name"] in line(row) == layouts_line(row) and "x1.500" in line(row)
    assert bars(row, {}) == [("no layout 1 % slower", False)]
    assert bars(row | {"slower": 1.01}, {}) == [("no layout 1 % slower", True)]


def test_other_bits_are_an_error(monkeypatch):
    report.import_attn()
    whole = layouts.fused
    monkeypatch.setattr(layouts, "fused", lambda torch, q, k, v: whole(torch, q, k, -v))
    point = LayoutPoint("tiny", (40,), None, "packed", q_heads=4, kv_heads=2, dim=64, device="host")
    with pytest.raises(RuntimeError, match="parts of a projection: other bits than tensors of their own"):
        measure_layouts(point, bench([1.0]))
