# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TRL's GRPO over packed groups, against the same trainer with TRL's own log-probabilities."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
trl = pytest.importorskip("trl", reason="TRL is not installed")

import attn  # noqa: E402
import datasets  # noqa: E402
import pyarrow  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from attn.training.trl import PackedGRPOTrainer, batches_of_groups, packed_rows  # noqa: E402
from tiny_decoders import EXPERTS, SIZES  # noqa: E402

WORDS = ["<pad>", "<eos>", *(f"w{i}" for i in range(30))]
LIKED = ("w3", "w5")


class OwnLogprobs(PackedGRPOTrainer):
    """A trainer with the same batches in the same order, in which each row has its own prompt."""

    _get_per_token_logps_and_entropies = trl.GRPOTrainer._get_per_token_logps_and_entropies


def tokenizer():
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>")
    of_words = tokenizers.Tokenizer(model)
    of_words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=of_words, pad_token="<pad>", eos_token="<eos>"
    )


def liked(completions, **_):
    return [float(sum(completion.split().count(word) for word in LIKED)) for completion in completions]


@pytest.fixture
def trainer(tmp_path):
    """Return a function that makes trainers. The model is in a folder, where TRL looks for its reference model."""

    def make(cls=PackedGRPOTrainer, kind="llama", options=(), of_trainer=(), **arguments):
        torch.manual_seed(0)
        sizes = SIZES | {"vocab_size": len(WORDS), "eos_token_id": 1, "pad_token_id": 0} | dict(options)
        config = transformers.AutoConfig.for_model(kind, **sizes)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
        prompts = [" ".join(f"w{(3 * i + j) % 30}" for j in range(10 + i)) for i in range(8)]
        table = pyarrow.table({"prompt": prompts})
        args = {
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 12,
            "max_steps": 4,
            "num_iterations": 2,
            "beta": 0.1,
            "learning_rate": 1e-2,
            "bf16": False,
            "gradient_checkpointing": False,
        }
        quiet = {"report_to": [], "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True}
        return cls(
            transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model"),
            liked,
            args=trl.GRPOConfig(str(tmp_path / "out"), use_cpu=True, **quiet, **args | arguments),
            train_dataset=datasets.Dataset(table, fingerprint="prompts"),
            processing_class=tokenizer(),
            **dict(of_trainer),
        )

    return make


def steps(trained):
    trained.train()
    names = "loss", "grad_norm", "kl", "entropy"
    found = [[float(log[name]) for name in names] for log in trained.state.log_history if "loss" in log]
    assert len(found) == 4
    return torch.tensor(found)


EXACT = {"attn_reference": True}


@pytest.mark.parametrize("budget", [None, 70], ids=["whole", "budget"])
def test_steps_are_those_of_copies(trainer, budget):
    """Log-probabilities of the policy, of the one before (two iterations) and of the reference model (beta) match."""
    packed = steps(trainer(of_trainer=EXACT | {"attn_budget": budget}))
    copies = steps(trainer(OwnLogprobs, of_trainer=EXACT))
    assert packed[:, 1].min() > 0.1, "nothing was learnt"
    torch.testing.assert_close(packed, copies, rtol=1e-4, atol=1e-5)


def test_the_log_says_what_packing_saves(trainer):
    """Two groups of four in a step: three copies of each prompt are saved in every call of a model."""
    trained = trainer(of_trainer=EXACT, beta=0.0, num_iterations=1, max_steps=2)
    prompts = []
    made = trained._get_per_token_logps_and_entropies

    def spied(model, input_ids, attention_mask, logits_to_keep, *others, **named):
        prompts.append((attention_mask.sum(), attention_mask[:, :-logits_to_keep].sum(1).view(-1, 4)[:, 0]))
        return made(model, input_ids, attention_mask, logits_to_keep, *others, **named)

    trained._get_per_token_logps_and_entropies = spied
    trained.train()
    logs = [log for log in trained.state.log_history if "loss" in log]
    assert len(logs) == len(prompts) == 2
    for log, (tokens, of_groups) in zip(logs, prompts, strict=True):
        # Responses that begin alike share rows, too.
        assert log["packing/rows_saved"] >= 3 * int(of_groups.sum()) > 0
        assert log["packing/rows"] + log["packing/rows_saved"] == int(tokens)
    assert "packing/rows" not in trained.state.log_history[-1], "the summary of a run is no step"


def test_kernels(trainer):
    """Kernels match copies in bfloat16 with checkpointing."""
    found = steps(trainer(bf16=True, gradient_checkpointing=True))
    copies = steps(trainer(OwnLogprobs, bf16=True, gradient_checkpointing=True))
    assert (found[0] - copies[0]).abs().max() < 1e-2  # later steps sample other completions


def test_packed_rows():
    ids = torch.tensor([[0, 5, 6, 7, 1], [0, 5, 6, 7, 8], [3, 5, 6, 9, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    (packed,) = packed_rows(ids, mask, 2, None)
    assert packed.edge_target.tolist() == [7, 1, 7, 8] and packed.lengths.tolist() == [4, 4, 3]


def test_groups_are_shuffled_whole():
    made = {
        "prompt_ids": torch.arange(24)[:, None],
        "n": torch.tensor(3),
        "none": None,
        "names": list(range(24)),
    }
    torch.manual_seed(0)
    batches = batches_of_groups(made, 2, 4)
    rows = torch.cat([batch["prompt_ids"][:, 0] for batch in batches])
    assert sorted(rows.tolist()) == list(range(24)) != rows.tolist()
    assert (rows.view(-1, 4) - rows.view(-1, 4)[:, :1] == torch.arange(4)).all()
    assert [batch["names"] for batch in batches] == [batch["prompt_ids"][:, 0].tolist() for batch in batches]
    assert all(batch["n"] == 3 and batch["none"] is None for batch in batches)


def test_bad_input_is_named(trainer):
    with pytest.raises(attn.SpecError, match="a multiple of num_generations=4, .* got 6; nearest legal: 4"):
        trainer(per_device_train_batch_size=6, steps_per_generation=2)
    with pytest.raises(attn.SpecError, match="router_aux_loss_coef: expected 0.0"):
        trainer(kind="qwen3_moe", options=EXPERTS)
    with pytest.raises(attn.PlanError, match="budget: expected at least the .* as no tree is cut, got 10"):
        trainer(of_trainer={"attn_budget": 10}).train()
    some = torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(attn.TensorError, match="pixel_values: expected None"):
        trainer()._get_per_token_logps_and_entropies(None, some, some, 1, pixel_values=some)
