# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that manages pages, as far as no GPU is needed: tiny pools run on the host. And what `bench host` counts
of pages, in small."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from measuring.host_pages import page_line, page_rows  # noqa: E402
from parts import pages  # noqa: E402
from parts.pages import Managed, PagesPoint, measure_pages, pages_line  # noqa: E402


def test_points():
    points = PARTS["pages"](False)
    assert len({point.key for point in points}) == len(points) == 6
    assert [point.key for point in PARTS["pages"](True)] == ["pages: step, 128 x 256 lists"]
    assert Clock.work(points[0]) == points[0].seconds() and "captured" in heading(points[0])
    assert points[1].floor_bytes() == 128 * 256 * 24


@pytest.mark.parametrize("kind", ["step", "compaction", "change"])
def test_tiny_pools(kind, monkeypatch):
    report.import_attn()
    seen = []

    def some_steps(torch, managed):
        for _ in range(60):
            managed.launches()
            seen.append(managed.pool.status())
        return 0.004

    monkeypatch.setattr(pages, "graph_time", some_steps)
    point = PagesPoint(4, kind, lists=6, device="host")
    bench = types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch))
    row = measure_pages(point, bench)
    assert row["key"] == f"pages: {kind}, 4 x 6 lists" and row["attn"] == {"run_ms": 0.004}
    assert row["name"] in line(row) == pages_line(row) and "4.0 us" in line(row)
    assert ("16 threads of a CPU" in line(row)) == (kind == "step")  # which see to it that no page is lost
    assert all(status.done for status in seen)
    assert any(status.asked for status in seen) != (kind == "compaction")  # which ends as it began
    assert bars(row, {}) == []
    assert bars(row | {"lists": 32768}, {}) == [("20 us", True)]


def test_requests_change_places():
    managed = Managed(torch, PagesPoint(3, "change", lists=2, device="host"))
    before = managed.pool.tokens.clone()
    managed.launches()
    assert torch.equal(managed.pool.tokens, before.flip(0))


def test_counts_of_the_host_device():
    rows = list(page_rows(requests=3, lists=100))
    assert [row["shape"] for row in rows] == [["first tokens"], ["a token each"], ["nothing"]]
    assert all(
        row["status"] == 0 and row["bytes_floor"] < row["bytes_read"] + row["bytes_written"] for row in rows
    )
    assert rows[0]["asked"] >= 600 and rows[2]["asked"] == 0
    # Three launches read what each list has, and nothing that grows with the table is read.
    assert rows[2]["bytes_read"] < 3 * rows[2]["bytes_floor"]
    assert page_line(rows[1]).endswith(f"{0:>7}")
