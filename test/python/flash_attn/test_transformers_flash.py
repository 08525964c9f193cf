# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn_implementation="attn_flash": Transformers' flash path, its continuous batching, TRL's padding-free batches and
veRL's patch, over attn.flash_attn on the CPU."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.transformers_fallback import FLASH_NAME  # noqa: E402
from attn.flash_attn import transformers_flash  # noqa: E402
from transformers.utils.generic import is_flash_attention_requested  # noqa: E402

FIRST, SECOND = 12, 18  # Tokens of two packed sequences.


def build(implementation, name="Llama", dtype=torch.float16, **changes):
    cls = getattr(transformers, f"{name}ForCausalLM")
    changes = {"initializer_range": 0.05, "eos_token_id": None} | changes
    return model_zoo.build(cls, implementation, dtype, 4, **changes).eval()


@pytest.fixture(params=["Llama", "Gemma2"])
def models(request):
    """A model with attn, whose layers of Gemma 2 have windows and soft caps, and its twin with eager attention."""
    changes = {"sliding_window": 8} if request.param == "Gemma2" else {}
    return build(FLASH_NAME, request.param, **changes), build(
        "eager", request.param, torch.float32, **changes
    )


@pytest.fixture
def calls(monkeypatch):
    """Return a list of the functions that layers called."""
    seen = []
    for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"):
        call = getattr(transformers_flash, name)
        monkeypatch.setattr(
            transformers_flash, name, lambda *a, _n=name, _c=call, **k: seen.append(_n) or _c(*a, **k)
        )
    return seen


def ids(*shape):
    return torch.randint(3, 90, shape, generator=torch.Generator().manual_seed(1))


def apart(model, tokens):
    """Return logits of two sequences, each run alone."""
    parts = [model(input_ids=part, use_cache=False).logits for part in tokens.split((FIRST, SECOND), 1)]
    return torch.cat(parts, 1)


POSITIONS = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None]


def close(found, wanted):
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-2, rtol=2e-2)


def test_the_name_is_one_of_flash_attention(models):
    assert is_flash_attention_requested(models[0].config)
    assert models[0].config._attn_implementation == FLASH_NAME


@torch.no_grad()
def test_packed_sequences(models, calls):
    model, eager = models
    tokens = ids(1, FIRST + SECOND)
    wanted = apart(eager, tokens)
    close(model(input_ids=tokens, position_ids=POSITIONS, use_cache=False).logits, wanted)
    offsets = torch.tensor([0, FIRST, FIRST + SECOND], dtype=torch.int32)
    lengths = dict(max_length_q=SECOND, max_length_k=SECOND)
    told = dict(cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, **lengths)
    close(model(input_ids=tokens, position_ids=POSITIONS, use_cache=False, **told).logits, wanted)
    assert set(calls) == {"flash_attn_varlen_func"}


@torch.no_grad()
def test_padding_and_generation(models, calls):
    model, eager = models
    tokens, mask = ids(2, 20), torch.ones(2, 20, dtype=torch.long)
    mask[0, :7] = 0
    found, wanted = (each(input_ids=tokens, attention_mask=mask).logits for each in models)
    close(found[mask.bool()], wanted[mask.bool()])
    assert set(calls) == {"flash_attn_varlen_func"}
    close(model(input_ids=tokens).logits, eager(input_ids=tokens).logits)
    assert "flash_attn_func" in calls
    made = [
        each.generate(
            tokens[1:], max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True
        )
        for each in models
    ]
    assert torch.equal(made[0].sequences, made[1].sequences)
    close(torch.stack(made[0].logits), torch.stack(made[1].logits))


def test_gradients_of_packed_sequences(models):
    model, eager = models
    tokens = ids(1, FIRST + SECOND)
    logits = model.train()(input_ids=tokens, position_ids=POSITIONS, use_cache=False).logits
    logits.float().square().mean().backward()
    apart(eager.train(), tokens).square().mean().backward()
    for one, other in zip(model.parameters(), eager.parameters(), strict=True):
        if other.grad is not None:
            scale = other.grad.abs().max().item()
            torch.testing.assert_close(one.grad.float(), other.grad, atol=0.03 * scale + 1e-6, rtol=0.03)


def test_models_of_several_implementations(models):
    """Transformers keeps the functions of one flash implementation; models of others in between take them away."""
    flash = transformers.modeling_flash_attention_utils
    tokens = ids(1, 9)
    with torch.no_grad():
        wanted = models[0](input_ids=tokens).logits
        flash._loaded_implementation, flash._flash_fn = "flash_attention_2", None
        assert torch.equal(models[0](input_ids=tokens).logits, wanted)


def test_dropout_is_refused_by_name():
    model = build(FLASH_NAME, attention_dropout=0.1).train()
    with pytest.raises(attn.SpecError, match="^dropout_p: expected 0.0, as attn has no dropout, got 0.1"):
        model(input_ids=ids(1, 9))


def test_models_with_attention_of_their_own():
    before = attn.transformers.set_fallback(False)
    try:
        with pytest.raises(attn.TensorError, match="BloomForCausalLM: .* attention of its own"):
            build(FLASH_NAME, "Bloom")
    finally:
        attn.transformers.set_fallback(before)


def test_sinks_go_along():
    q, k, v = (torch.randn(18, heads, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))
    sinks = torch.tensor([0.5, 1.0, -1.0, 2.0], dtype=torch.bfloat16)
    starts = torch.tensor([0, 5, 18], dtype=torch.int32)
    found = transformers_flash._attend_packed(q, k, v, starts, starts, 13, 13, causal=True, s_aux=sinks)
    wanted = attn.attend(q, k, v, causal=True, cu_seqlens=starts, sink_logits=sinks.float())
    assert torch.equal(found, wanted)
    found = transformers_flash._attend(q[None], k[None], v[None], window_size=(4, 0), s_aux=sinks)
    wanted = attn.attend(q[None], k[None], v[None], causal=True, window=5, sink_logits=sinks.float())
    assert torch.equal(found, wanted)
    with pytest.raises(
        attn.TensorError, match="^s_aux: expected None, as attn.flash_attn has no sinks over a block"
    ):
        transformers_flash._attend_cache(q, k, v, s_aux=sinks)


# --- Engines and trainers ------------------------------------------------------------------------------------


@torch.no_grad()
def test_continuous_batching(models, monkeypatch):
    """generate_batch, which since Transformers 5.19 takes names with "flash" alone, runs to its end."""
    paged = pytest.importorskip("transformers.generation.continuous_batching.cache")
    handler = paged.PagedAttentionMemoryHandler
    monkeypatch.setattr(handler, "get_available_memory", lambda *args, **named: 1 << 28)
    model, eager = models
    prompts = [[5, 6, 7, 8, 9], list(range(20, 60)), [11], list(range(60, 89))]
    options = transformers.GenerationConfig(
        max_new_tokens=5, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    sizes = {"num_blocks": 24, "block_size": 16, "max_batch_tokens": 32, "use_cuda_graph": False}
    config = transformers.generation.ContinuousBatchingConfig(**sizes)
    results = model.generate_batch(
        prompts, generation_config=options, continuous_batching_config=config, progress_bar=False
    )
    for name, prompt in zip(sorted(results, key=lambda name: int(name.split("_")[1])), prompts, strict=True):
        wanted = eager.generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False, pad_token_id=0)
        assert results[name].generated_tokens == wanted[0, len(prompt) :].tolist()
    assert model.config._attn_implementation == FLASH_NAME


def test_padding_free_batches_of_trl(tmp_path):
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0")
    named = {"unk_token": "w0", "pad_token": "w1", "eos_token": "w2"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), **named)
    texts = [{"input_ids": ids(1, count)[0].tolist()} for count in (9, 14, 5, 20, 11, 7, 16, 8)]

    def losses(implementation, padding_free):
        arguments = trl.SFTConfig(
            str(tmp_path / f"{implementation} {padding_free}"),
            padding_free=padding_free,
            per_device_train_batch_size=4,
            max_steps=3,
            max_length=None,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        model = build(implementation, dtype=torch.bfloat16, eos_token_id=2)
        data = datasets.Dataset.from_list(texts)
        trainer = trl.SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)
        trainer.train()
        return torch.tensor([float(log["loss"]) for log in trainer.state.log_history if "loss" in log])

    free = losses(FLASH_NAME, True)
    assert free[0] - free[-1] > 0.02, "nothing was learnt"
    torch.testing.assert_close(free, losses("eager", False), atol=5e-3, rtol=1e-3)


@torch.no_grad()
def test_unpadded_batches_of_verl(monkeypatch):
    """veRL's default removes padding, and puts its own function before Transformers' flash path."""
    patch = pytest.importorskip("verl.models.transformers.monkey_patch", reason="veRL is not installed")
    integration = transformers.integrations.flash_attention
    monkeypatch.setattr(integration, "_flash_attention_forward", integration._flash_attention_forward)
    monkeypatch.setattr(patch, "is_trl_available", lambda: False)
    model, tokens = build(FLASH_NAME), ids(1, FIRST + SECOND)
    patch.apply_monkey_patch(model, use_remove_padding=True, ulysses_sp_size=1)
    assert integration._flash_attention_forward is patch._ulysses_flash_attention_forward
    found = model(input_ids=tokens, attention_mask=None, position_ids=POSITIONS, use_cache=False).logits
    close(found, apart(build("eager", dtype=torch.float32), tokens))
