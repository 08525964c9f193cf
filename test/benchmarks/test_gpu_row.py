# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part `row` of `bench gpu`, as far as no GPU is needed: tiny points on the host."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import row as part  # noqa: E402
from parts.row import RowPoint, measure_row, row_line  # noqa: E402


def bench(seconds):
    """A bench whose timer runs each side once."""

    def alone(functions):
        for function in functions.values():
            function()
        return dict(zip(functions, seconds, strict=True))

    def sustained(functions, alone, record, declined):
        assert all(record(name) is function for name, function in functions.items())
        return alone

    timer = types.SimpleNamespace(alone=alone, sustained=sustained)
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer))


def test_points():
    points = PARTS["row"](False)
    assert len({point.key for point in points}) == len(points) == 13
    assert {point.kind for point in points} == set(part.BARS)
    assert Clock.work(points[0]) == points[0].seconds() and "contract" in heading(points[0])


@pytest.mark.parametrize("kind,lengths,rows", [("decode", (70, 40), 1), ("training", (90, 30), None)])
def test_tiny_points(kind, lengths, rows):
    report.import_attn()
    point = RowPoint(kind, lengths, rows, q_heads=4, kv_heads=2, dim=64, device="host")
    found = measure_row(point, bench([2.0, 2.1]))
    assert found["ratio"] == found["sustained_ratio"] == pytest.approx(1.05)
    assert found["rows_compared"] >= 3 and found["name"] in line(found) == row_line(found)
    assert bars(found, {}) == [(f"{kind}: at most {part.BARS[kind]} times the default", kind == "training")]


def test_other_bits_are_an_error(monkeypatch):
    report.import_attn()
    compare = part.compare_bits
    monkeypatch.setattr(part, "compare_bits", lambda *given: compare(*given[:-1], -given[-1]))
    point = RowPoint("decode", (70,), 1, q_heads=4, kv_heads=2, dim=64, device="host")
    with pytest.raises(RuntimeError, match="other bits"):
        measure_row(point, bench([1.0, 1.0]))
