# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training of a model over prompts that responses share (examples/13_real_model/train.py): both sides learn the same.

Tiny decoders stand for the model where it need not be real. Tests of the real one, cut to its first layers, skip by name
without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

LESSON = Path(__file__).resolve().parents[3] / "examples" / "13_real_model"
sys.path.append(str(LESSON))
import shared_prompts  # noqa: E402
import smollm2  # noqa: E402
import train  # noqa: E402
from attn.training import group, pack  # noqa: E402
from shared_prompts import Side  # noqa: E402
from tiny_decoders import decoder, replicated_logprobs  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
NAMES = ("loss_apart", "gradients_apart", "worst_weight_apart")


@pytest.fixture
def packed():
    """Two groups with a common beginning; two responses are equal, and one has a single token."""
    begin = list(range(20, 40))
    trees = [
        group([*begin, 1], [[2, 3, 4], [2, 3, 4], [2], [5, 6]]),
        group([*begin, 2], [[7, 8], [9, 1, 2, 3]]),
    ]
    return pack(trees)[0]


def first_layers(count, dtype=torch.float32):
    """The real model with fewer layers."""
    if absent := smollm2.missing():
        pytest.skip(absent)
    model = smollm2.load(dtype, "cpu", "sdpa")
    model.model.layers = model.model.layers[:count]
    model.config.num_hidden_layers = count
    return model


def test_copies_are_each_trajectory_alone(packed):
    model = decoder()
    found = shared_prompts.logprobs_of_copies(model, packed)
    torch.testing.assert_close(found, replicated_logprobs(model, packed), rtol=0, atol=1e-5)


def test_both_sides_make_the_same_updates(packed):
    both = shared_prompts.sides(decoder(), "float32", 1e-3)
    start = both[0].model.model.layers[0].mlp.up_proj.weight.detach().clone()
    loss = shared_prompts.Clipped(packed, torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0]))
    for number in range(3):
        row = shared_prompts.compare(both, loss)
        assert all(row[name] <= 1e-4 for name in NAMES), row
        assert row["norms_apart"] <= 1e-4 and set(row["s"]) == {"packed", "replicated"}
        assert number == 0 or abs(row["loss"]["packed"]) > 1e-3, "ratios have moved"
    assert (both[0].model.model.layers[0].mlp.up_proj.weight - start).abs().max() > 1e-3
    row = shared_prompts.compare(both, lambda side: side.cross_entropy(packed))
    assert all(row[name] <= 1e-4 for name in NAMES), row
    assert row["loss"]["replicated"] == pytest.approx(
        -replicated_logprobs(both[1].model, packed).mean().item(), abs=0.5
    )


def test_a_clipped_ratio_stops_its_gradient(packed):
    """The first call notes probabilities; later ratios beyond 0.8 to 1.2 count as the bound where that is the less."""
    side = Side("packed", decoder(), "float32")
    loss = shared_prompts.Clipped(packed, torch.ones(6))
    assert loss(side).item() == pytest.approx(-1) and loss.beyond["packed"] == 0
    loss.before["packed"] = loss.before["packed"] - 1  # Ratios of e.
    found = loss(side)
    found.backward()
    assert found.item() == pytest.approx(-1.2) and loss.beyond["packed"] == 1
    assert all(gradient.abs().max() == 0 for gradient in shared_prompts.gradients(side.model).values())


def test_a_difference_is_seen():
    wanted = {"one": torch.tensor([4.0, 0.0]), "other": torch.tensor([0.0, 0.5])}
    found = {"one": torch.tensor([4.0, 0.0]), "other": torch.tensor([0.1, 0.5])}
    apart = shared_prompts.gradients_apart(found, wanted)
    assert apart["gradients_apart"] == pytest.approx(0.1 / 4)
    assert apart["worst_weight_apart"] == pytest.approx(0.1 / 0.5)
    assert apart["norms_apart"] == pytest.approx(0.1 / (16.25**0.5))
    with pytest.raises(ValueError, match="of the same weights, got others: {'other'}"):
        shared_prompts.gradients_apart({"one": wanted["one"]}, wanted)


@pytest.mark.parametrize(
    "text,expected",
    [
        ("12", 1.0),
        (" 12.\n", 1.0),
        ("13", 0.25),
        ("2", 0.5 / 11),
        ("The answer is 12", 0.0),
        ("", 0.0),
        ("12 13", 0.0),
    ],
)
def test_checker(text, expected):
    assert shared_prompts.reward(text, 12) == pytest.approx(expected)


def test_advantages_are_of_a_group():
    found = shared_prompts.advantages(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert found[1].tolist() == [0, 0] and found[0, 0] > 0.7 and found.sum(1).abs().max() < 1e-6


def test_samples_end_with_their_end_token():
    model = decoder()
    model.generation_config.eos_token_id = 5
    made = shared_prompts.sample(model, [[1, 2, 3], [4, 6, 7]], 64, 4, seed=0)
    assert [len(each) for each in made] == [64, 64]
    ended = [row for of_prompt in made for row in of_prompt if 5 in row]
    assert ended and all(row.index(5) == len(row) - 1 for row in ended)
    assert all(len(row) == 4 for of_prompt in made for row in of_prompt if 5 not in row)
    assert made == shared_prompts.sample(model, [[1, 2, 3], [4, 6, 7]], 64, 4, seed=0)
    assert made != shared_prompts.sample(model, [[1, 2, 3], [4, 6, 7]], 64, 4, seed=1)


def test_precision_of_a_device():
    assert shared_prompts.choose_precision("cpu") == "float32"
    assert shared_prompts.choose_precision("cuda") == "bfloat16"
    assert shared_prompts.choose_precision("cpu", "bfloat16") == "bfloat16"
    with pytest.raises(ValueError, match="precision: expected bfloat16 on a GPU.*got float32"):
        shared_prompts.choose_precision("cuda", "float32")


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["grpo", "--responses", "1"], "--responses: expected at least 2"),
        (["sft", "--section", "20"], "--section: expected at least 48, got 20"),
        (["grpo", "--steps", "0"], "--steps: expected at least 1, got 0"),
        ([], "the following arguments are required: sft | grpo"),
    ],
)
def test_options_that_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        train.parse(arguments)
    assert message in capsys.readouterr().err


def test_a_section_with_too_few_words():
    class Words:
        eos_token_id = 0

        def __call__(self, text):
            return type("Ids", (), {"input_ids": list(range(len(text.split())))})

        def decode(self, ids):
            return " ".join(f"w{number}" for number in ids)

    with pytest.raises(ValueError, match="questions: expected at most 5, as the section has 20 words, got 6"):
        shared_prompts.Quiz(Words(), 20).trees(6)


def test_updates_of_the_real_model(monkeypatch):
    """Losses and gradients of the first layers, trained on their own samples and on a section. Two layers answer no sum,
    and equal rewards have no gradient: other words have one here."""
    monkeypatch.setattr(shared_prompts, "reward", lambda text, answer: float(sum(map(ord, text))))
    both = shared_prompts.sides(first_layers(2), "float32", 1e-4)
    tokens = smollm2.tokenizer()
    task = shared_prompts.Sums(tokens, examples=1, pool=4)
    prompts, answers = task.ask(3)
    assert len({len(prompt) for prompt in prompts}) == 1 and all(4 <= answer <= 18 for answer in answers)
    sizes = {"steps": 1, "questions": 2, "responses": 2, "most": 3}
    rows = list(shared_prompts.grpo(both, task, **sizes))
    assert [(row["step"], row["update"]) for row in rows] == [(0, 0), (0, 1)]
    rows += shared_prompts.sft(both, shared_prompts.Quiz(tokens, 48), steps=1, questions=3)
    for row in rows:
        assert row["sharing"] == row["copies"] / row["rows"] > 1.5
        assert all(row[name] <= 1e-4 for name in NAMES) and row["gradients_apart"] > 0, row
        assert "apart" in shared_prompts.line(row)
    assert train.summary(rows)["sharing"] > 1.5


@pytest.mark.skipif(not FULL, reason="all layers of the model take half a minute: they run with --full")
@pytest.mark.parametrize("task", ["grpo", "sft"])
def test_program(task, tmp_path):
    if absent := smollm2.missing():
        pytest.skip(absent)
    sizes = {"grpo": ["--responses", "2", "--examples", "2"], "sft": ["--section", "48"]}[task]
    command = [sys.executable, str(LESSON / "train.py"), task, "--steps", "1", "--questions", "2", *sizes]
    result = subprocess.run(
        [*command, "--json", str(tmp_path / "rows.json")], capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "times fewer rows" in result.stdout and (tmp_path / "rows.json").exists()
