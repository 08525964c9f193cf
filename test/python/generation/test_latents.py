# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recorded steps over latents (MLA): the engine and the decoder give the tokens of `generate`, in 16 bits and in 8, and
refuse by name what they do not do."""

import copy

import pytest
from decoding import COLUMNS, NEW, attn, build, decoder_of, paged, prompt, reference, torch, transformers
from test_engine import engine_of

MODELS = ("DeepseekV2", "DeepseekV3", "Youtu", "Glm4MoeLite")
SIZES = dict(
    kv_lora_rank=64, qk_rope_head_dim=16, head_dim=16, qk_nope_head_dim=32, qk_head_dim=48, v_head_dim=32
)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def latent_model(name="DeepseekV3", implementation="attn", **changes):
    if not hasattr(transformers, f"{name}ForCausalLM"):
        pytest.skip(f"this Transformers has no {name}")
    return build(name, implementation, dtype=torch.float16, **(SIZES | changes))


def prompts(counts=(9, 1, 17, 5), seed=3):
    chance = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 90, (count,), generator=chance).tolist() for count in counts]


def alone(model, ids, new, **options):
    """Return the tokens of a prompt that is read and answered by itself."""
    cache = paged(model, latent=True, **options)
    given = torch.tensor([ids])
    mask = torch.ones_like(given)
    out = model.generate(
        given, attention_mask=mask, max_new_tokens=new, do_sample=False, past_key_values=cache
    )
    return out[0, len(ids) :].tolist()


def answers(engine, asked, new):
    return [output.token_ids for output in engine.generate(asked, max_new_tokens=new)]


@pytest.mark.parametrize("name", MODELS)
def test_an_engine_gives_the_tokens_of_generate(name):
    """Prompts in chunks beside rows that decode, in more requests than fit a step."""
    model = latent_model(name)
    engine = engine_of(model, rows=8, cache=paged(model, latent=True))
    asked = prompts()
    assert answers(engine, asked, NEW) == [alone(model, ids, NEW) for ids in asked]
    assert engine.cache.pages.head_dim == 80 and engine.cache.pages.kv_heads == 1


def test_requests_share_pages_of_their_prompt():
    model = latent_model()
    engine = engine_of(model, rows=16, cache=paged(model, latent=True), prefix_cache=True)
    (head,) = prompts((12,))
    asked = [head + tail for tail in prompts((3, 2, 5), seed=4)]
    found = [answers(engine, [ids], NEW)[0] for ids in asked]
    assert found == [alone(model, ids, NEW) for ids in asked]
    assert engine.metrics().cached_tokens >= 2 * 8


@pytest.mark.parametrize("scales", ["tensor", "token"])
def test_latents_in_8_bits(scales, monkeypatch):
    """The first rows of `generate` attend to each other before they are rounded; those of an engine read what is stored, as
    `generate` does if it takes all rows for later ones."""
    model = latent_model()
    form = dict(key="fp8_e4m3", key_scales=scales)
    engine = engine_of(model, rows=8, cache=paged(model, latent=True, **form))
    asked = prompts((7, 4, 13))
    found = answers(engine, asked, NEW)
    monkeypatch.setattr(attn.transformers.PagedCache, "holds_tokens", lambda cache, layer: True)
    assert found == [alone(model, ids, NEW, **form) for ids in asked]


def test_latents_as_engines_store_them():
    model = latent_model(kv_lora_rank=512, qk_rope_head_dim=64, head_dim=64, qk_head_dim=96).bfloat16()
    engine = engine_of(model, rows=8, cache=paged(model, latent=True, key="fp8_ds_mla"))
    ids = prompts((7,))[0]
    assert answers(engine, [ids], 4) == [alone(model, ids, 4, key="fp8_ds_mla")]
    assert engine.cache.pages.token_bytes == 656 * model.config.num_hidden_layers


@pytest.mark.parametrize("name", MODELS[:2])
def test_a_decoder_gives_the_tokens_of_generate(name):
    model, inputs = latent_model(name), prompt()
    expected = reference(model, inputs, past_key_values=paged(model, latent=True))
    decoder = decoder_of(model, inputs, cache=paged(model, latent=True))
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), expected)
    assert decoder.length == COLUMNS + NEW - 1


def test_a_decoder_continues_and_copies():
    model, inputs = latent_model(), prompt((0,))
    decoder = decoder_of(model, inputs, cache=paged(model, latent=True))
    ids = inputs["input_ids"]
    first = decoder.generate(ids, max_new_tokens=4)
    held = decoder.length
    assert torch.equal(
        decoder.generate(first, max_new_tokens=4, held=held),
        reference(model, inputs, 8, past_key_values=paged(model, latent=True)),
    )
    several = attn.transformers.Decoder(
        model, sequences=3, tokens=COLUMNS + NEW, cache=paged(model, latent=True)
    )
    out = several.generate(ids, max_new_tokens=4, num_return_sequences=3)
    assert torch.equal(out, first.expand(3, -1))


def test_a_float32_model_over_latents_of_16_bits():
    model = build("DeepseekV3", "attn", dtype=torch.float32, **SIZES)
    narrow = dict(latent=True, dtype=torch.bfloat16)
    engine = engine_of(model, rows=8, cache=paged(model, **narrow))
    ids = prompts((6,))[0]
    assert answers(engine, [ids], NEW) == [alone(model, ids, NEW, dtype=torch.bfloat16)]


def test_copies_of_a_cache_hold_latents():
    model = latent_model()
    cache = paged(model, latent=True)
    ids = torch.tensor([prompts((9,))[0]])
    model(ids, use_cache=True, past_key_values=cache)
    twin = copy.deepcopy(cache)
    assert twin.holds_tokens(0) and not cache._beside(model.config, pages=2).holds_tokens(0)
    assert cache._beside(model.config, pages=2).is_latent


def test_refusals():
    model = latent_model()
    cache = paged(model, latent=True)
    for make in (engine_of, lambda model, **options: decoder_of(model, prompt(), **options)):
        with pytest.raises(attn.PlanError, match="compile: expected False or None over latents, got True"):
            make(model, cache=cache, compile=True)
    decoder = decoder_of(model, prompt(), cache=paged(model, latent=True))
    tensor = torch.zeros(3, 4, COLUMNS, 48, dtype=torch.float16)
    with pytest.raises(attn.TensorError, match="layers: the cache holds latents, which the model makes"):
        decoder.fill([(tensor, tensor)])
    rows = latent_model(implementation="attn_row")
    with pytest.raises(attn.PlanError, match="attn_implementation: expected attn, over latents in pages"):
        engine_of(rows, cache=paged(rows, latent=True))
