# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of `bench gpu` that read tensors as engines lay them, and latents, as far as no GPU is needed: tiny ones on
the host."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import latent, layouts  # noqa: E402
from parts.latent import LatentPoint, latent_line, measure_latent  # noqa: E402
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


def latent_bench():
    """A bench whose timer runs each side once."""

    def alone(functions):
        for function in functions.values():
            function()
        return dict.fromkeys(functions, 2.0)

    def sustained(functions, alone, record, declined):
        record("attn")()
        return alone

    timer = types.SimpleNamespace(alone=alone, sustained=sustained)
    results = types.SimpleNamespace(session={"copy_bytes_per_second": 1e9})
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer), results=results)


def test_latent_points():
    points = PARTS["mla"](False)
    assert len({point.key for point in points}) == len(points) == 19 and len(PARTS["mla"](True)) == 3
    assert Clock.work(points[0]) == points[0].seconds() and "latent" in heading(points[0])
    assert points[1].latent_bytes() == 128 * 8192 * 1152
    assert points[1].flops() == 2 * 128 * 8192 * 128 * 1088
    assert points[12].latent_bytes() == 128 * 8192 * 576 and "e4m3" in points[12].name
    assert points[9].name == "128 heads, 128 x 8192, pages of 16" and points[9].page == 16


def test_tiny_latents():
    point = LatentPoint(2, 70, 4, rows=2, device="host")
    row = measure_latent(point, latent_bench())
    assert row["attn"]["run_ms"] == 2.0 and row["difference"] < latent.DIFFERENCE and not row["peers_ms"]
    assert row["name"] in line(row) == latent_line(row) and "flashinfer" in row["declined"]
    assert bars(row, {}) == []
    share = row | {"q_heads": 16, "rows": 1, "copy_share": 0.9}
    assert bars(share, {}) == [("0.85 of copying", True)]


def test_tiny_latents_in_e4m3():
    row = measure_latent(LatentPoint(2, 70, 16, e4m3=True, device="host"), latent_bench())
    assert row["difference"] < latent.DIFFERENCE and row["over_bf16"] == 1.0 and not row["peers_ms"]
    assert "x1.00 of bf16" in latent_line(row) and bars(row, {}) == [("1.6 times as fast as bf16", False)]
    many = row | {"q_heads": 128, "shape": [128, 128, 8192], "tflops": 400.0}
    assert bars(many, {}) == []


def test_wrong_latents_are_not_timed(monkeypatch):
    monkeypatch.setattr(latent, "SCALE", 0.5)
    whole = latent.Latents.definition
    monkeypatch.setattr(latent.Latents, "definition", lambda self, s: -whole(self, s))
    with pytest.raises(RuntimeError, match="from the definition"):
        measure_latent(LatentPoint(1, 20, 2, device="host"), latent_bench())
