# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`bench training` and `bench real training` as far as no GPU is needed: tiny layers on the CPU."""

import copy
import os
import sys
from types import SimpleNamespace

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


def test_a_trained_model(monkeypatch):
    """All rows of the part, of the real model cut to its first layer; without the model it skips by name."""
    report.import_attn()
    sys.path.append(str(report.ROOT / "examples" / "13_real_model"))
    import smollm2
    from trained import training as of_model

    if absent := smollm2.missing():
        pytest.skip(absent)
    model = smollm2.load(torch.float32, "cpu", "sdpa")
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:1], 1
    monkeypatch.setattr(of_model, "ROUNDS", 1)
    # One layer writes empty lines alone; these responses have rewards that differ.
    shared_prompts = of_model.shared_prompts
    monkeypatch.setattr(shared_prompts, "sample", lambda *_: [[[33, 34, 2], [35, 2]]])
    monkeypatch.setattr(shared_prompts, "reward", lambda text, answer: float(len(text)))
    loaded, weights = [], copy.deepcopy(model.state_dict())

    def load(dtype, attention):
        loaded.append((dtype, attention))
        return model

    options = SimpleNamespace(quick=True, device="cpu", training_steps=None)
    with torch.inference_mode():
        rows = list(of_model.PARTS["training"](load, options))
    assert set(loaded) == {(torch.float32, "sdpa")}
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert [row["task"] for row in rows] == ["time", "time", "grpo", "grpo", "sft"]
    assert all(row["part"] == "training" and row["precision"] == "float32" for row in rows)
    assert [row["way"] for row in rows[:2]] == ["packed", "replicated"] and rows[0]["sharing"] > 1.7
    assert all(row["s"] > 0 and row["peak_bytes"] is None for row in rows[:2])
    assert all(0 < row["gradients_apart"] <= 1e-4 and row["loss_apart"] <= 1e-4 for row in rows[2:])
    assert [of_model.line(row).split()[0] for row in rows] == ["2", "2", "grpo", "grpo", "sft"]
    # In bfloat16, by kernels, gradients are about as far from float32 as those of copies are.
    both = shared_prompts.sides(model, "bfloat16", 1e-6)
    row = of_model.measure_error(both, smollm2.tokenizer(), of_model.QUICK)
    packed, copies = row["packed"]["norms_apart"], row["replicated"]["norms_apart"]
    assert 0 < packed <= 1.2 * copies < 0.1
    assert of_model.line(row).endswith(f"packed {packed:.4f}, replicated {copies:.4f}")
