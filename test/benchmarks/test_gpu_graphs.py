# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that replays steps, as far as no GPU is needed: tiny ones run on the host."""

import types

import pytest
from benchlab import SESSION

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import graphs  # noqa: E402
from parts.graphs import Decoding, GraphPoint, graph_line, measure_graph  # noqa: E402

TINY = GraphPoint(2, 20, layers=2, q_heads=2, kv_heads=1, dim=64, device="host")


@pytest.fixture
def bench(monkeypatch):
    report.import_attn()
    monkeypatch.setattr(graphs, "STEPS", 2)
    monkeypatch.setattr(graphs, "WARM_UP", 1)
    monkeypatch.setattr(graphs, "ROUNDS", 2)
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch))


def test_points():
    points = PARTS["graphs"](False)
    assert len({point.key for point in points}) == len(points) == 4
    assert [point.key for point in PARTS["graphs"](True)] == ["graphs: 32 layers, 16 x 4096"]
    assert Clock.work(points[0]) == points[0].seconds() and "host" in heading(points[0])


def test_tiny_steps(bench):
    row = measure_graph(TINY, bench)
    assert row["key"] == "graphs: 2 layers, 2 x 20" and row["table_bytes"] > 0 and row["launch_us"] > 0
    for times in (row["step_ms"], row["update_us"], row["launches_us"]):
        assert set(times) == {"replay", "eager"} and min(times.values()) > 0
    assert row["name"] in line(row) == graph_line(row)


def test_sides_attend_to_the_same(bench):
    """The timed results are right. A step of one side is a token more for the other: its keys are the same."""
    decoding = Decoding(torch, TINY)
    first = decoding.results("replay")
    for node in decoding.nodes:
        assert decoding.cache.tokens(node) == 21
    decoding.plan = decoding.kernel.plan(decoding.cache.batch(decoding.nodes))
    for layer in range(TINY.layers):
        decoding.kernel.run(
            decoding.q[layer], decoding.cache.layer(layer), decoding.plan, out=decoding.out[layer]
        )
    assert (decoding.out.float() - first).abs().max() < 2e-2


def test_the_program_takes_steps():
    found = graphs.without_python(GraphPoint(2, 30, layers=1, device="host"))
    assert set(found) == {"step_ms", "update_us", "launches_us"} and min(found.values()) > 0


def test_steps_without_python(monkeypatch, tmp_path):
    """A program that stands for attn-step-time is asked for the point, and what it says is in the row."""
    told = tmp_path / "told"
    fake = tmp_path / "attn-step-time"
    fake.write_text(
        f"#!/bin/sh\nprintf '%s ' \"$@\" > {told}\n"
        'echo \'{"step_ms": 1.25, "update_us": 20.0, "launches_us": 300.0}\'\n'
    )
    fake.chmod(0o755)
    found = graphs.program
    monkeypatch.setattr(
        graphs, "program", lambda name: str(fake) if name == "attn-step-time" else found(name)
    )
    assert graphs.without_python(TINY) is None  # other heads
    point = GraphPoint(3, 40, layers=2, device="host")
    assert graphs.without_python(point)["step_ms"] == 1.25
    assert told.read_text().split()[1:] == ["3", "40", "2", "host"]
    fake.write_text("#!/bin/sh\necho 'attn-step-time: error: no driver' >&2; exit 2\n")
    with pytest.raises(RuntimeError, match="2 layers, 3 x 40: attn-step-time: error: no driver"):
        graphs.without_python(point)


def test_bars():
    row = {
        "part": "graphs",
        "layers": 32,
        "step_ms": {"replay": 1.0, "eager": 1.5},
        "update_us": {"replay": 50},
    }
    assert [met for _, met in bars(row, SESSION)] == [True, True]
    slow = row | {"step_ms": {"replay": 1.6, "eager": 1.5}, "update_us": {"replay": 61}}
    assert [met for _, met in bars(slow, SESSION)] == [False, False]
    assert len(bars(row | {"layers": 2}, SESSION)) == 1
    embedded = row | {"step_ms": row["step_ms"] | {"eager, C++": 1.4}}
    assert [met for _, met in bars(embedded, SESSION)] == [True, True, True]
