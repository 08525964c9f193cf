# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn in every text architecture of this Transformers: beside eager attention, in tiny models with random weights.

Each is served, falls back or is refused, and is never wrong: with and without padding, short and long, and no token
sees the future.
"""

import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.adapters.transformers_fallback  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.transformers_fallback import own_attention  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
MAPPINGS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM")
ZOO = {
    (mapping, of_type): model
    for mapping in MAPPINGS
    for of_type, model in model_zoo.classes(mapping)
    if of_type not in model_zoo.LEFT_OUT
}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def calls(monkeypatch):
    """Return a list that counts the attention calls that attn served."""
    served = []
    attend = attn.adapters.rows.padded_calls.PaddedCall.__call__
    monkeypatch.setattr(
        attn.adapters.rows.padded_calls.PaddedCall,
        "__call__",
        lambda *args: served.append(1) or attend(*args),
    )
    monkeypatch.setattr(attn.adapters.transformers_fallback, "_warned", set())
    return served


def prompts(model):
    """Return inputs by name, and a mask of the outputs that count."""
    random = torch.Generator().manual_seed(7)
    decoder = getattr(model.config, "is_encoder_decoder", False) and not model_zoo.is_causal(model)

    def ids(batch, rows):
        return torch.randint(3, model_zoo.VOCABULARY, (batch, rows), generator=random)

    least = model_zoo.LEAST.get(model.config.model_type, 4)
    for rows, padding in ((least, None), (12, None), (40, (5, 0, 11))):
        inputs = {"input_ids": ids(3, rows)}
        shown = torch.ones(3, rows, dtype=torch.bool)
        if padding:
            for i, count in enumerate(padding):
                shown[i, :count] = False
            inputs["attention_mask"] = shown.long()
        if decoder:
            inputs["decoder_input_ids"] = ids(3, 9)
            shown = torch.ones(3, 9, dtype=torch.bool)
        yield inputs, shown


def logits(model, inputs):
    return model(**inputs, use_cache=False).logits.float()


def error(ours, exact, shown):
    """Return the mean over tokens of the relative error, at most 1 each: routers may choose other experts for a few
    tokens."""
    apart = (ours - exact).norm(dim=-1) / exact.norm(dim=-1).clamp(min=1e-6)
    return apart.clamp(max=1).nan_to_num(1)[shown].mean().item()


def compare(mapping, of_type, calls):
    """Return 'attn', 'partly', 'fell back' or 'no attention'; fail where a model of attn is further from exact numbers
    than eager attention is."""
    kind = ZOO[mapping, of_type]
    known = "sdpa" if of_type in model_zoo.APART else "eager"
    exact, rounded = (model_zoo.build(kind, known, dtype) for dtype in (torch.float32, torch.float16))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = model_zoo.build(kind, "attn", torch.float16)
        for inputs, shown in prompts(ours):
            right, found = logits(exact, inputs), logits(ours, inputs)
            rounding = error(logits(rounded, inputs), right, shown)
            assert error(found, right, shown) <= 3 * rounding + 4e-3, inputs["input_ids"].shape
            if "attention_mask" in inputs or not model_zoo.is_causal(ours):
                continue
            changed = dict(inputs, input_ids=inputs["input_ids"].clone())
            changed["input_ids"][:, -1] = (changed["input_ids"][:, -1] + 5) % 80 + 3
            before = shown[:, :-1]
            if error(logits(exact, changed)[:, :-1], right[:, :-1], before) < 1e-4:  # not for encoders
                future = error(logits(ours, changed)[:, :-1], found[:, :-1], before)
                assert future <= rounding + 4e-3, "sees the future"
    messages = [str(w.message) for w in caught if issubclass(w.category, attn.transformers.FallbackWarning)]
    assert len(messages) == len(set(messages))
    return ("partly" if messages else "attn") if calls else (
        "fell back" if messages else "no attention"
    ), messages


# Models that each cover one reason: causal masks of decoders whose layers say that they are not causal
# (BigBird-Pegasus, NLLB-MoE, Pegasus-X), an attention class of the model (BLOOM, and before Transformers 5.24
# GPT-J), a bias of scores (T5), chunks (Llama 4), windows both ways (ModernBERT), selected tokens (DeepSeek
# 3.2).
QUICK = {
    ("CAUSAL_LM", "bigbird_pegasus"): "attn",
    ("CAUSAL_LM", "bloom"): "fell back",
    ("CAUSAL_LM", "gptj"): "fell back" if own_attention(transformers.GPTJForCausalLM) else "attn",
    ("CAUSAL_LM", "llama4_text"): "attn",
    ("MASKED_LM", "modernbert"): "attn",
    ("SEQ_TO_SEQ_CAUSAL_LM", "nllb-moe"): "attn",
    ("SEQ_TO_SEQ_CAUSAL_LM", "pegasus_x"): "attn",
    ("SEQ_TO_SEQ_CAUSAL_LM", "t5"): "fell back",
}
REFUSED = [key for key, outcome in QUICK.items() if outcome == "fell back"] + [("CAUSAL_LM", "deepseek_v32")]


@pytest.mark.parametrize("mapping,of_type", ZOO if FULL else QUICK)
def test_is_right_or_says_so(mapping, of_type, calls):
    outcome, _ = compare(mapping, of_type, calls)
    assert outcome == QUICK.get((mapping, of_type), outcome)


@pytest.mark.parametrize("mapping,of_type", ZOO if FULL else REFUSED)
def test_is_right_or_refused(mapping, of_type):
    """Without a fallback, a model that would fall back is refused by name, and every other one is served."""
    attn.transformers.set_fallback(False)
    try:
        model = model_zoo.build(ZOO[mapping, of_type], "attn", torch.float16)
        for inputs, _ in prompts(model):
            logits(model, inputs)
        outcome = "attn"
    except attn.TensorError as error:
        assert "which attn does not serve" in str(error)
        outcome = "fell back"
    finally:
        attn.transformers.set_fallback(True)
    assert outcome == (
        "fell back" if (mapping, of_type) in REFUSED else QUICK.get((mapping, of_type), outcome)
    )


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("heads", [2, 4])
def test_outputs_can_be_viewed(heads, recorded):
    """Outputs can be viewed in any shape, as JetMoE does, also where each head has its own keys."""
    layer = torch.nn.Module()
    layer.is_causal, layer.config = True, transformers.LlamaConfig(attn_implementation="attn")
    q, k, v = (
        torch.randn(2, 9, count, 32).to(torch.bfloat16).transpose(1, 2).requires_grad_(recorded)
        for count in (heads, 2, 2)
    )
    for key, value in ((k, v), (k.contiguous(), v.contiguous())):
        out, _ = attn.transformers.attention_forward(layer, q, key, value, None, scaling=0.2)
        assert out.shape == (2, 9, heads, 32) and out.is_contiguous()
