# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of `bench gpu` that make gradients, as far as no GPU is needed: tiny ones run on the host."""

import types

import pytest
from benchlab import SESSION

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import OWN, Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import backward, shared_backward  # noqa: E402
from parts.backward import BackwardPoint, backward_line  # noqa: E402
from parts.deep import DeepPoint  # noqa: E402
from parts.shared_backward import SharedPoint  # noqa: E402


class Times:
    """Stands for a timer: every side runs once, and takes as many milliseconds as there were before it."""

    def alone(self, sides):
        for side in sides.values():
            side()
        self.host = {name: 1e-3 for name in sides}
        return {name: 1.0 + place for place, name in enumerate(sides)}

    def sustained(self, sides, alone, record, declined):
        return {name: alone[name] for name in sides}


@pytest.fixture
def bench(monkeypatch):
    """Backends of the GPU are stood for by PyTorch's attention in float32, rounded."""
    report.import_attn()

    def sdpa(torch, name, causal, expand=False):
        def attention(q, k, v):
            q, k, v = (tensor.transpose(1, 2).float() for tensor in (q, k, v))
            found = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=True
            )
            return found.transpose(1, 2).bfloat16()

        return attention

    for part in (backward, shared_backward):
        monkeypatch.setattr(part, "sdpa", sdpa)
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=Times()))


def test_points():
    points = [
        point for part in ("backward", "shared-backward", "tree-backward") for point in PARTS[part](False)
    ]
    assert len({point.key for point in points}) == len(points)
    assert {point.key for point in PARTS["backward"](True)} < {point.key for point in points}
    for point in points:
        assert point.flops() > 0 and Clock.work(point) == point.seconds() and "x:" in heading(point)


def test_pairs():
    """Pairs of a shared prompt are those that its rows and the rows of the responses see, counted one by one."""
    point = SharedPoint(3, 5, 2)
    assert point.pairs() == sum(range(1, 6)) + 3 * (6 + 7)
    assert (
        BackwardPoint(2, 4, 1, 1).pairs() == 2 * 10 and BackwardPoint(2, 4, 1, 1, causal=False).pairs() == 32
    )


@pytest.mark.parametrize("causal", (True, False))
def test_gradients_are_those_of_the_peer(bench, causal):
    point = BackwardPoint(2, 24, 4, 2, dim=32, causal=causal, device="host")
    row = OWN["backward"][0](point, bench)
    assert row["judge"] == "cudnn" and 0 < row["difference"] <= backward.DIFFERENCE
    assert row["ratio_to_best_peer"] == 2 and set(row["peers_ms"]) == {"cudnn", "flash"}
    assert row["ordered_ms"] == 4 and "ordered 4.000 x4.00" in line(row)
    assert [met for _, met in bars(row, SESSION)] == [True, False]
    assert [met for _, met in bars(row | {"ordered_slowdown": 1.2}, SESSION)] == [True, True]
    assert line(row) == backward_line(row) and row["name"] in line(row) and "host 1000 us" in line(row)


def test_wrong_gradients_are_refused(bench, monkeypatch):
    monkeypatch.setattr(backward, "DIFFERENCE", 1e-9)
    with pytest.raises(RuntimeError, match="attn's gradients differ from those of cudnn by"):
        OWN["backward"][0](BackwardPoint(1, 24, 2, 2, dim=32, device="host"), bench)


def test_shared_prompts(bench):
    row = OWN["shared-backward"][0](SharedPoint(2, 40, 8, 2, 1, 32, device="host"), bench)
    assert set(row["peers_ms"]) == {"replicated", "cudnn, replicated"} and bars(row, SESSION) == []
    large = row | {"responses": 16, "prompt": 32768, "attn": {"run_ms": 190.0}, "ratio_to_best_peer": 5.4}
    assert [met for _, met in bars(large, SESSION)] == [True, True]
    slow = large | {"attn": {"run_ms": 200.0}, "ratio_to_best_peer": 5.2}
    assert [met for _, met in bars(slow, SESSION)] == [False, False]


def test_a_deep_tree_has_work_of_all_its_levels():
    """Counted row by row, and a prompt with as many responses."""
    point = DeepPoint(3, 1, 2)
    starts, parents = point.deep()
    assert parents == [-1, 0, 1, 2, 0, 4, 5] and starts == [0, 2, 4, 6, 8, 10, 12, 14]
    assert point.pairs() == (1 + 2) + 2 * ((3 + 4) + (5 + 6) + (7 + 8))
    assert point.flat() == ([0, 4, 8, 12], [-1, 0, 0]) and point.pairs(point.flat()) == 10 + 2 * (4 * 4 + 10)


def test_a_deep_tree(bench):
    row = OWN["tree-backward"][0](DeepPoint(3, 1, 8, 2, 1, 32, device="host"), bench)
    flops = row["visited_flops"]
    assert row["tflops"] == flops / row["attn"]["run_ms"] / 1e9
    assert row["ratio_to_best_peer"] == pytest.approx(row["peers_ms"]["one level"] / row["attn"]["run_ms"])
    assert "one level" in line(row) and len(bars(row, SESSION)) == 1
    assert [met for _, met in bars(row | {"ratio_to_best_peer": 0.89}, SESSION)] == [False]
