# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Identification of retrieval heads on small untrained models: the loss, stopping and resuming."""

import copy
import io
import os
import sys

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
from attn.heads import Gates, HeadChoice, Passkeys, distill, files, identify, recall  # noqa: E402
from attn.heads.models import Decoder  # noqa: E402

SINK, RECENT, TOKENS = 2, 6, 48
SIZES = {"sink": SINK, "recent": RECENT}


def model_of(kind="Llama", **options):
    torch.manual_seed(0)
    sizes = {
        **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3},
        **{"attn_implementation": "eager", "pad_token_id": None},
    }
    config = getattr(transformers, f"{kind}Config")(**sizes | options)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def passkeys(seed=0, **options):
    made = {
        **{"alphabet": range(30), "haystack": range(12, 60), "openings": [[60], [61]], "separator": [62]},
        **{"lengths": (TOKENS, TOKENS), "intervals": 1, "passkey": 4, "batch": 2, "seed": seed},
    }
    return Passkeys(**made | options)


def masked(model, tokens, see):
    """Return the last hidden states, and attention weights, of eager attention with a mask."""
    at = torch.arange(tokens.shape[1])
    mask = torch.where(see.sees(at[:, None], at), 0.0, -torch.inf)[None, None]
    with torch.no_grad():
        return model.model(tokens, attention_mask=mask, use_cache=False, output_attentions=True)


STREAMING = attn.causal() & (attn.sink(SINK) | attn.recent(RECENT))


# --- The loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blend", ("release", "paper"))
@pytest.mark.parametrize("kind", ("Llama", "Mistral", "Qwen3"))
def test_the_distance_is_that_of_masks(kind, blend):
    """With gates of 0 the loss is the distance of a model whose heads all stream; with gates of 1 it is 0."""
    options = {"sliding_window": None} if kind == "Mistral" else {}
    model, data, seen = model_of(kind, **options), passkeys(), []
    tokens, counted, _ = data(0)
    wanted = masked(model, tokens, attn.causal()).last_hidden_state
    moved = (masked(model, tokens, STREAMING).last_hidden_state - wanted)[counted].square().mean().item()
    for initial in (0.0, 1.0):
        options = {"steps": 1, "initial": initial, "regularization": 0.25, "blend": blend}
        gates = identify(model, data, **SIZES, **options, progress=seen.append)
        assert gates.values.shape == (2, 2) and (gates.sink, gates.recent) == (SINK, RECENT)
    assert abs(seen[0].distance - moved) <= 1e-5 * moved and seen[0].sparsity == 1
    assert seen[1].distance <= 1e-9 and seen[1].sparsity == 0
    assert seen[0].loss == seen[0].distance and abs(seen[1].loss - seen[1].distance - 0.25) < 1e-6
    assert str(seen[1]).startswith("step 1 of 1: loss 0.25,")


def test_windows_are_kept():
    """Heads of Mistral that retrieve see no further than the model's window."""
    model, data, seen = model_of("Mistral", sliding_window=20), passkeys(), []
    tokens, counted, _ = data(0)
    wanted = masked(model, tokens, attn.window(20)).last_hidden_state
    moved = masked(model, tokens, STREAMING & attn.window(20)).last_hidden_state - wanted
    for blend in ("release", "paper"):
        options = {"steps": 1, "initial": 0.0, "blend": blend}
        identify(model, data, **SIZES, **options, progress=seen.append)
        assert abs(seen[-1].distance / moved[counted].square().mean().item() - 1) <= 1e-5


@pytest.mark.parametrize("blend", ("release", "paper"))
def test_gates_go_down_where_they_cost_nothing(blend):
    """The regulariser alone acts on the gate of a head whose values are 0. The release's blend leaves the gate a step
    below 0 at most."""
    model = model_of()
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight[:8] = 0
    gates = identify(model, passkeys(), **SIZES, steps=30, rate=0.2, regularization=1e-4, blend=blend).values
    assert gates[1, 0] < 0.05 and gates[1, 0] == gates.min()
    assert gates.min() >= (-0.2 if blend == "release" else 0) and gates.max() <= (
        1.2 if blend == "release" else 1
    )


def test_attention_that_streaming_heads_would_miss():
    """The measure is the share of eager weights beyond sink and recent, for the group's head with the largest share."""
    model, data = model_of(), passkeys()
    found = identify(model, data, method="attention", **SIZES, steps=2).values
    at, wanted = torch.arange(TOKENS), 0
    for step in range(2):
        tokens, counted, _ = data(step)
        missed = ~STREAMING.sees(at[:, None], at)
        weights = torch.stack(
            masked(model, tokens, attn.causal()).attentions
        )  # [layers, batch, heads, rows, tokens]
        shares = (weights * missed).sum(-1)[..., counted[0]].mean((1, 3))
        wanted = wanted + shares.view(2, 2, 2).amax(-1) / 2
    numpy.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_ablation_streams_one_head_at_a_time():
    """A layer of one KV head, and one whose values are 0."""
    model, data, seen = model_of(num_hidden_layers=1, num_key_value_heads=1), passkeys(), []
    tokens, counted, _ = data(0)
    wanted = masked(model, tokens, attn.causal()).last_hidden_state
    moved = (masked(model, tokens, STREAMING).last_hidden_state - wanted)[counted].square().mean().item()
    gates = identify(model, data, method="ablation", **SIZES, steps=1, progress=seen.append)
    assert gates.values.tolist() == [[1.0]] and abs(seen[0].distance / moved - 1) <= 1e-5
    model = model_of()
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight[8:] = 0
    values = identify(model, data, method="ablation", **SIZES, steps=2).values
    assert values.max() == 1 and values[0, 1] < 1e-9 < values[0, 0]


# --- Runs ----------------------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def stop_at(step):
    def progress(report):
        if report.step == step:
            raise Stopped

    return progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("method", ("distill", "ablation", "attention"))
def test_a_terminal_shows_how_far_it_is(method, monkeypatch):
    """By default, in one line that is gone afterwards; `progress=False` and other outputs show nothing."""
    model, shown = model_of(), {}
    for name, stream, options in (
        ("terminal", Terminal(), {}),
        ("quiet", Terminal(), {"progress": False}),
        ("file", io.StringIO(), {}),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        identify(model, passkeys(), method=method, **SIZES, steps=2, **options)
        shown[name] = stream.getvalue()
    assert shown["quiet"] == shown["file"] == ""
    assert shown["terminal"].startswith("\r\033[Kattn: identify: step 1 of 2: loss ")
    assert shown["terminal"].endswith("\r\033[K") and "\n" not in shown["terminal"]


@pytest.mark.parametrize("blend", ("release", "paper"))
def test_goes_on_with_the_same_bits(tmp_path, blend):
    model, options = model_of(), {**SIZES, "steps": 7, "rate": 0.1, "blend": blend}
    path = tmp_path / "gates.pt"
    whole = identify(model, passkeys(), **options).values
    for step in (3, 6):
        with pytest.raises(Stopped):
            identify(model, passkeys(), **options, checkpoint=path, every=2, progress=stop_at(step))
    steps = []
    again = identify(model, passkeys(), **options, checkpoint=path, progress=lambda p: steps.append(p.step))
    assert steps == [7] and (again.values == whole).all()
    # All steps were done.
    assert (identify(model, passkeys(), **options, checkpoint=path).values == whole).all()
    assert (identify(model, passkeys(1), **options).values != whole).any()


def test_a_kill_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    """A kill loses the checkpoint in progress; its partial file does not disturb the next run."""
    model, options = model_of(), {**SIZES, "steps": 5, "rate": 0.1}
    path, whole, written = tmp_path / "gates.pt", identify(model, passkeys(), **options).values, []

    def killed(file):
        written.append(file)
        if len(written) == 2:
            os.ftruncate(file, 100)
            raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        identify(model, passkeys(), **options, checkpoint=path, every=2)
    monkeypatch.undo()
    assert (tmp_path / "gates.pt.new").stat().st_size == 100
    steps = []
    again = identify(model, passkeys(), **options, checkpoint=path, progress=lambda p: steps.append(p.step))
    assert steps == [3, 4, 5] and (again.values == whole).all()


def test_checkpoints_of_something_else(tmp_path):
    model, path = model_of(), tmp_path / "gates.pt"
    identify(model, passkeys(), **SIZES, steps=2, checkpoint=path)
    for options, message in (
        ({"steps": 3}, "steps: expected 3, as is asked for, got 2"),
        ({"recent": 7}, "recent: expected 7"),
        ({"blend": "paper"}, "blend: expected paper"),
        ({"data": passkeys(1)}, "texts: expected"),
        ({"model": model_of(num_key_value_heads=4)}, r"gates: expected \[2, 4\]"),
    ):
        given = {"model": model, "data": passkeys(), **SIZES, "steps": 2} | options
        with pytest.raises(attn.SpecError, match=message):
            identify(given.pop("model"), given.pop("data"), **given, checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(attn.SpecError, match="expected a checkpoint of attn.heads.identify"):
        identify(model, passkeys(), **SIZES, steps=2, checkpoint=path)


def test_a_loss_that_is_no_number_stops_with_its_step(tmp_path):
    model, data, path = model_of(), passkeys(), tmp_path / "gates.pt"
    with torch.no_grad():
        model.model.embed_tokens.weight[63] = torch.nan

    def poisoned(step):
        texts = data(step)
        texts.tokens[0, 5] = 63 if step == 3 else 5
        return texts

    with pytest.raises(attn.CheckError, match="step 3: the loss is nan"):
        identify(model, poisoned, **SIZES, steps=9, checkpoint=path, every=1)
    assert torch.load(path)["step"] == 3 and torch.load(path)["gates"].isfinite().all()


@pytest.mark.parametrize("method", ("distill", "ablation", "attention"))
def test_the_model_stays_as_it_is(method):
    model = model_of().train()
    model.model.embed_tokens.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(Stopped):
        identify(model, passkeys(), method=method, **SIZES, steps=2, progress=stop_at(1))
    assert model.training and model.config._attn_implementation == "eager"
    assert [p.requires_grad for p in model.parameters()] == [False] + [True] * (len(before) - 1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(hasattr(layer.self_attn, "attn_attends") for layer in model.model.layers)
    assert all(p.grad is None for p in model.parameters())


def test_half_precision():
    """Gates and compared hidden states are float32."""
    model = model_of().to(torch.bfloat16)
    values = identify(model, passkeys(), **SIZES, steps=3, rate=1e-4).values
    assert (values != 1).all() and (abs(values - 1) < 3.1e-4).all()


def gradient(model, initial):
    """Return the gradient of the distance by the gates, over so many tokens that its mean is small."""
    decoder, seen = Decoder(model), []
    with decoder.at_rest():
        run = distill._Run(
            decoder, passkeys(batch=256), distill.Settings("release", SINK, RECENT, 1, 0.02, 0.0, initial)
        )
        own = run._gradient
        run._gradient = lambda *given: seen.append(own(*given)) or seen[0]
        run.train()
    return seen[0]


@pytest.mark.parametrize("power", (None, 40.0))
def test_gradients_in_float16(power, monkeypatch):
    """They are neither too small for float16 nor, whatever the first factor, too large."""
    exact = gradient(model_of(), 0.999)
    if power:
        monkeypatch.setattr(distill.math, "log2", lambda count: power)
    found = gradient(model_of().to(torch.float16), 0.999)
    assert (found - exact).norm() <= 2e-2 * exact.norm()  # 0.63 without a factor


# --- Choices -------------------------------------------------------------------------------------------------


def test_recall_of_a_choice():
    """Recall is that of the model with masks, head by head."""
    model, texts = model_of(), passkeys(batch=16)(0)
    for classes in ([[0, 0], [0, 0]], [[1, 1], [1, 1]]):
        see = STREAMING if classes[0][0] else attn.causal()
        said = model.lm_head(masked(model, texts.tokens[:, :-1], see).last_hidden_state).argmax(-1)
        right = (said == texts.tokens[:, 1:])[texts.answers[:, 1:]].float().mean().item()
        choice = HeadChoice(classes, **SIZES)
        assert recall(model, texts, choice) == right
    rows = []
    hook = model.lm_head.register_forward_pre_hook(lambda module, given: rows.append(given[0].shape[1]))
    assert recall(model, texts) == recall(model, texts, HeadChoice([[0, 0], [0, 0]], **SIZES))
    hook.remove()
    assert rows == [texts.answers.any(0).sum()] * 2, "logits are as wide as the vocabulary"
    with pytest.raises(attn.SpecError, match="choice: expected 2 layers of 2 KV heads"):
        recall(model, texts, Gates([[1.0]]).select(sparsity=0))


@pytest.mark.parametrize(
    "options,message",
    [
        ({"method": "distil"}, "method: expected one of distill, .*nearest legal: 'distill'"),
        ({"blend": "both"}, "blend: expected one of release, paper"),
        ({"method": "attention", "checkpoint": "x"}, "checkpoint: of method distill alone"),
        ({"recent": 0}, "recent: expected a number of tokens from 1 on"),
        ({"recent": 46}, r"data\(0\): expected texts longer than the 48 tokens"),
        ({"steps": 0}, "steps: expected a whole number from 1 on"),
        ({"rate": -1}, "rate: expected a number from 0 on"),
        ({"every": 0}, "every: expected"),
        ({"data": [1]}, "data: expected a function"),
        ({"data": lambda step: step}, r"data\(0\): expected tokens and which of them count"),
        ({"model": torch.nn.Linear(2, 2)}, "model: expected a decoder of Transformers"),
    ],
)
def test_refusals(options, message):
    given = {"model": model_of(), "data": passkeys(), **SIZES} | options
    with pytest.raises(attn.SpecError, match=message):
        identify(given.pop("model"), given.pop("data"), **given)


def test_models_that_are_refused():
    model = model_of("Gemma2")
    with pytest.raises(attn.SpecError, match="softcap"):
        identify(model, passkeys(), **SIZES, steps=1)
