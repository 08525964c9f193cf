# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`bench training` as far as no GPU is needed: tiny layers on the CPU."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import training  # noqa: E402
from measuring import report, training_attention  # noqa: E402
from measuring.training_attention import AttentionPoint, attention_line, measure_attention  # noqa: E402
from training import POINTS, SIDES, TrainingPoint, line, measure  # noqa: E402

TINY = TrainingPoint(
    3, 20, 8, layers=2, hidden=64, inner=96, q_heads=2, kv_heads=1, head_dim=32, device="cpu"
)


def test_points():
    assert POINTS[0] == TrainingPoint(16, 8192, 2048, layers=4)


def test_tiny_layers():
    report.import_attn()
    row = measure(torch, TINY, rounds=2)
    assert tuple(row["sides"]) == SIDES and row["sharing"] == 3 * 28 / (20 + 3 * 8)
    assert row["sides"]["sdpa"]["error"] == 0 and 0 < row["sides"]["packed"]["error"] < 0.02
    assert all(len(found["rounds"]) == 2 and found["ms"] > 0 for found in row["sides"].values())
    assert line(TINY, row).startswith("N = 3, P = 20, R = 8  sharing 1.91  packed ")


def test_the_copies_as_trees_share_nothing():
    report.import_attn()
    sides = training.Sides(torch, TINY)
    assert sides.packed.forest.nodes == 4 and len(sides.packed.tokens) == 20 + 3 * 8
    assert sides.trees.forest.nodes == 3 and len(sides.trees.tokens) == 3 * 28
    rows = torch.arange(3 * 28)[:, None].expand(-1, 2)
    assert sides._responses(rows, "trees")[:, :, 0].tolist() == [
        list(range(28 * i + 20, 28 * i + 28)) for i in range(3)
    ]


def test_workloads_of_the_paper():
    """Prompts of 5K to 131K, responses of 131 to 2,048; those whose times it says stand in front."""
    sizes = {(point.responses, point.prompt, point.response) for point in training_attention.POINTS}
    assert set(training_attention.PAPER_MS) < sizes and len(sizes) == 13
    assert {point.prompt for point in training_attention.POINTS} >= {5120, 131072}
    assert {point.response for point in training_attention.POINTS} == {131, 512, 2048}


@pytest.mark.parametrize("copied", [True, False])
def test_attention_four_ways(copied, monkeypatch):
    """All of them make the same gradients; where copies are too many, two sides are left."""
    report.import_attn()
    point = AttentionPoint(3, 40, 11, q_heads=4, kv_heads=2, dim=32, device="cpu")
    monkeypatch.setitem(training_attention.PAPER_MS, (3, 40, 11), 7)
    if not copied:
        monkeypatch.setattr(training_attention, "COPIED", 0)
    row = measure_attention(torch, point, rounds=1)
    assert tuple(row["sides"]) == training_attention.SIDES[: 4 if copied else 2]
    assert all(found["error"] < 0.02 and found["ms"] > 0 for found in row["sides"].values())
    told = attention_line(point, row)
    assert told.startswith("attention, N = 3, P = 40, R = 11  packed ")
    assert "; DualKV 7 ms (paper, H100)  " in told and told.endswith(" times as fast")
