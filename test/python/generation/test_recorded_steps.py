# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The next token of a step: the tokens that can be drawn and their frequency, the end of a sequence, and options that
are refused by name."""

import os
import types

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
from attn.generation.decoder_checks import refuse_others, token_ids  # noqa: E402
from attn.generation.recorded_steps import Choice  # noqa: E402

LOGITS = torch.tensor([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 2.5, 2.0]])


def drawn(choice, draws=4000, row=0):
    torch.manual_seed(0)
    found = choice.choose(LOGITS[row].expand(draws, -1))
    return torch.bincount(found, minlength=4) / draws


def test_the_likeliest_token_and_the_first_of_equals():
    assert Choice().choose(LOGITS).tolist() == [1, 0]
    assert Choice().choose(torch.ones(1, 5)).tolist() == [0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature):
    found = drawn(Choice(sample=True, temperature=temperature))
    torch.testing.assert_close(found, (LOGITS[0] / temperature).softmax(0), atol=0.03, rtol=0)


def test_top_k_leaves_the_largest():
    found = drawn(Choice(sample=True, top_k=2))
    assert found[0] == found[3] == 0
    torch.testing.assert_close(found[1:3], LOGITS[0, 1:3].softmax(0), atol=0.03, rtol=0)
    assert torch.equal(Choice(sample=True, top_k=1).choose(LOGITS), LOGITS.argmax(1))
    assert (drawn(Choice(sample=True, top_k=9)) > 0).all()


def test_top_p_leaves_the_likeliest_that_reach_it():
    """Probabilities are 0.46, 0.28, 0.17 and so on; a token is kept if those before it sum to less than top_p."""
    weights = LOGITS[1].softmax(0)
    kept = drawn(Choice(sample=True, top_p=float(weights[0]) + 0.01), row=1)
    assert (kept > 0).tolist() == [True, False, True, False]
    torch.testing.assert_close(kept[0], weights[0] / (weights[0] + weights[2]), atol=0.03, rtol=0)
    assert torch.equal(Choice(sample=True, top_p=1e-6).choose(LOGITS), LOGITS.argmax(1))


def test_what_ends_a_sequence():
    assert Choice(ends=(2, 7)).ended(torch.tensor([1, 2, 7, 0])).tolist() == [False, True, True, False]
    assert not Choice().ended(torch.tensor([0, 1])).any()
    assert token_ids("eos_token_id", None, 9) == () and token_ids("eos_token_id", 3, 9) == (3,)
    assert token_ids("eos_token_id", torch.tensor([3, 4]), 9) == (3, 4)


@pytest.mark.parametrize(
    "options,told",
    [
        ({"temperature": 0.0}, "temperature: expected more than 0, got 0.0"),
        ({"top_k": -1}, "top_k: expected 0 .* got -1; nearest legal: 0"),
        ({"top_p": 1.5}, "top_p: expected more than 0, at most 1, got 1.5; nearest legal: 1.0"),
    ],
)
def test_choices_that_mean_nothing(options, told):
    with pytest.raises(attn.PlanError, match=told):
        Choice(sample=True, **options)


@pytest.mark.parametrize("given", [-1, 9, True, [3, "a"]])
def test_tokens_outside_the_vocabulary(given):
    with pytest.raises(attn.PlanError, match="eos_token_id: expected tokens, 0 to 8, got"):
        token_ids("eos_token_id", given, 9)


def test_options_that_are_refused_by_name():
    plain = types.SimpleNamespace(num_beams=1, repetition_penalty=None, streamer=None)
    refuse_others({"num_beams": 1, "streamer": None}, plain, False)
    for name, value in {"num_beams": 4, "assistant_model": object(), "repetition_penalty": 1.2}.items():
        with pytest.raises(attn.PlanError, match=f"^{name}=.*take model.generate"):
            refuse_others({name: value}, plain, False)
    with pytest.raises(attn.PlanError, match="got 'top_q'; nearest legal: 'top_k' or 'top_p'"):
        refuse_others({"top_q": 3}, plain, False)
    with pytest.raises(attn.PlanError, match="^model.generation_config: repetition_penalty=1.1"):
        refuse_others({}, types.SimpleNamespace(repetition_penalty=1.1), False)
    sampled = types.SimpleNamespace(min_p=0.1)  # it counts where tokens are drawn
    refuse_others({}, sampled, False)
    with pytest.raises(attn.PlanError, match="min_p=0.1"):
        refuse_others({}, sampled, True)
