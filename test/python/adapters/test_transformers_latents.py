# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transformers' models with latent attention (MLA) over pages of latents: logits and tokens of eager attention, the bytes
of a token, prompts in chunks, forks, and refusals by name."""

import copy
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.latent_layers import LatentLinear  # noqa: E402
from attn.adapters.transformers_config import CACHE  # noqa: E402

PADDING, ROWS, NEW = (5, 0, 11), 24, 12
LATENT, ROTATED = 64, 16
SIZES = dict(
    kv_lora_rank=LATENT,
    qk_rope_head_dim=ROTATED,
    head_dim=ROTATED,
    qk_nope_head_dim=32,
    qk_head_dim=48,
    v_head_dim=32,
)
MODELS = {
    "DeepseekV2": {},
    "DeepseekV3": {"rope_interleave": True},
    "DeepseekV3 without q_lora": {"rope_interleave": False, "q_lora_rank": None},
    "Youtu": {},
    "Glm4MoeLite": {},
}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def build(name="DeepseekV3", implementation="attn", dtype=torch.float16, **sizes):
    """A model whose weights are those of every call with this name."""
    kind = getattr(transformers, f"{name.split()[0]}ForCausalLM", None)
    if kind is None:
        pytest.skip(f"this Transformers has no {name}")
    return model_zoo.build(kind, implementation, dtype, **SIZES | MODELS[name] | sizes)


def paged(model, pages=64, **options):
    return attn.transformers.PagedCache(model.config, pages=pages, page_size=4, **options)


def prompt():
    ids = torch.randint(3, 90, (3, ROWS), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    for row, count in enumerate(PADDING):
        mask[row, :count] = 0
    return ids, mask


def in_chunks(model, cache, sizes):
    """Return logits of a prompt that is read in parts."""
    ids, mask = prompt()
    found, at = [], 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for size in sizes:
        part = {"position_ids": positions[:, at : at + size], CACHE: cache}
        out = model(ids[:, at : at + size], attention_mask=mask[:, : at + size], **part)
        found.append(out.logits.float())
        at += size
    return torch.cat(found, 1), mask.bool()


def error(ours, exact, mask):
    return ((ours - exact).norm(dim=-1) / exact.norm(dim=-1))[mask].mean()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_logits(name, dtype):
    """The first rows attend to each other in expanded form, all others in latent form to pages."""
    cache = paged(model := build(name, dtype=dtype))
    ours, mask = in_chunks(model, cache, (13, 7, *(1,) * 4))
    exact, _ = in_chunks(build(name, "eager", torch.float32), None, (ROWS,))
    rounded, _ = in_chunks(build(name, "eager", dtype), None, (ROWS,))
    assert error(ours, exact, mask) <= 3 * error(rounded, exact, mask) + 4e-3
    assert cache.is_latent and cache.pages.kv_heads == 1
    assert (cache.pages.head_dim, cache.pages.value_dim) == (LATENT + ROTATED, LATENT)
    assert cache.pages.token_bytes == 2 * (LATENT + ROTATED) * model_zoo.LAYERS  # bytes of all layers
    assert [cache.pages.tokens(node) for node in cache.nodes] == [ROWS - count for count in PADDING]
    cache.reset()
    assert cache.pages.free_pages() == 64


@pytest.mark.parametrize("autocast", [False, True])
def test_a_float32_model_over_latents_of_16_bits(autocast):
    model, dtype = build(dtype=torch.float32), torch.bfloat16
    cache = paged(model) if autocast else paged(model, dtype=dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        ours, mask = in_chunks(model, cache, (13, 7, *(1,) * 4))
    exact, _ = in_chunks(build(implementation="eager", dtype=torch.float32), None, (ROWS,))
    rounded, _ = in_chunks(build(implementation="eager", dtype=dtype), None, (ROWS,))
    assert cache.is_latent and cache.pages.layer(0).k.dtype == dtype
    assert error(ours, exact, mask) <= 3 * error(rounded, exact, mask)


@pytest.mark.parametrize("scales", [None, "token"])
@pytest.mark.parametrize("name", ["DeepseekV2", "DeepseekV3"])
def test_latents_in_8_bits(name, scales):
    """Lines in e4m3, of half as many bytes: as near to float32 as three bits of a mantissa are."""
    model = build(name, dtype=torch.bfloat16)
    cache = paged(model, latent=True, key="fp8_e4m3", **({"key_scales": scales} if scales else {}))
    ours, mask = in_chunks(model, cache, (13, 7, *(1,) * 4))
    exact, _ = in_chunks(build(name, "eager", torch.float32), None, (ROWS,))
    assert error(ours, exact, mask) <= 0.08
    line = LATENT + ROTATED + 4 * (scales == "token")
    assert cache.is_latent and cache.pages.token_bytes == line * model_zoo.LAYERS
    ids, mask = prompt()
    options = dict(attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    again = paged(model, latent=True, key="fp8_e4m3", **({"key_scales": scales} if scales else {}))
    assert model.generate(ids, **options, past_key_values=again).shape[0] == 3


def test_latents_as_engines_store_them():
    """Latents of 512 features in e4m3 and 64 rotated ones in bf16, in lines of 656 bytes."""
    long = dict(kv_lora_rank=512, qk_rope_head_dim=64, head_dim=64, qk_head_dim=96)
    model = build(dtype=torch.bfloat16, **long)
    cache = paged(model, latent=True, key="fp8_ds_mla")
    ours, mask = in_chunks(model, cache, (13, 7, *(1,) * 4))
    exact, _ = in_chunks(build("DeepseekV3", "eager", torch.float32, **long), None, (ROWS,))
    assert error(ours, exact, mask) <= 0.06
    assert cache.is_latent and cache.pages.token_bytes == 656 * model_zoo.LAYERS
    with pytest.raises(attn.PlanError, match="key_scales: expected None beside key='fp8_ds_mla'"):
        paged(model, latent=True, key="fp8_ds_mla", key_scales="token")
    with pytest.raises(attn.PlanError, match="where values are the first 64 features .* has values of 512"):
        paged(build(), latent=True, key="fp8_ds_mla")


def test_lines_are_what_the_model_projects():
    """A line is the normalized latent and the rotated key that heads share."""
    model = build()
    cache, (ids, mask) = paged(model), prompt()
    seen = {}
    layer = model.model.layers[1].self_attn
    layer.kv_a_layernorm.register_forward_hook(lambda *given: seen.update(latent=given[-1]))
    model(ids, attention_mask=mask, **{CACHE: cache})
    for row, node in enumerate(cache.nodes):
        lines = cache.pages.layer(1).stored(node)["k"][:, 0]
        assert torch.equal(lines[:, :LATENT], seen["latent"][row, PADDING[row] :])
        assert lines[:, LATENT:].abs().sum() > 0
    assert cache.pages.layer(1).v.data_ptr() == cache.pages.layer(1).k.data_ptr()


@pytest.mark.parametrize("name", ["DeepseekV2", "DeepseekV3"])
def test_tokens_of_generate(name):
    """Greedy tokens are those of eager attention in float32, unless two logits are nearly alike."""
    ids, mask = prompt()
    options = dict(attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    model, exact = build(name), build(name, "eager", torch.float32)
    for each in (model, exact):
        each.generation_config.eos_token_id = None  # Rows go on after it.
    tokens = model.generate(ids, **options, past_key_values=(cache := paged(model)))
    assert cache.pages.tokens(cache.nodes[1]) == ROWS + NEW - 1
    shown = torch.cat([mask, torch.ones(3, NEW, dtype=mask.dtype)], 1)
    positions = (shown.cumsum(1) - 1).clamp(min=0)
    logits = exact(tokens, attention_mask=shown, position_ids=positions).logits[:, ROWS - 1 : -1]
    chosen = logits.gather(2, tokens[:, ROWS:, None])[..., 0]
    spread = logits.std(-1)
    assert ((logits.max(-1).values - chosen) <= 0.02 * spread).all()
    assert torch.equal(tokens, exact.generate(ids, **options)) or (logits.max(-1).values > chosen).any()


def test_forks_crops_and_beams():
    model = build()
    ids, mask = prompt()
    cache = paged(model, pages=128)
    model(ids, attention_mask=mask, **{CACHE: cache})
    twin = copy.deepcopy(cache)
    shown = torch.cat([mask, torch.ones(3, 2, dtype=mask.dtype)], 1)
    positions = (shown.cumsum(1) - 1)[:, -2:]
    more = ids[:, :2]
    once, again = (
        model(more, attention_mask=shown, position_ids=positions, **{CACHE: each}).logits
        for each in (cache, twin)
    )
    assert torch.equal(once, again)
    cache.crop(-2)
    repeated = model(more, attention_mask=shown, position_ids=positions, **{CACHE: cache}).logits
    assert torch.equal(once, repeated)
    beams = model.generate(ids, attention_mask=mask, num_beams=2, max_new_tokens=4, do_sample=False,
                           past_key_values=paged(model, pages=256))  # fmt: skip
    assert beams.shape == (3, ROWS + 4)


def test_other_caches_of_a_watched_model():
    """A layer that was watched gives other caches what it gave them before."""
    model = build()
    before, mask = in_chunks(model, transformers.DynamicCache(config=model.config), (20, 4))
    in_chunks(model, paged(model), (20, 4))
    assert type(model.model.layers[0].self_attn.kv_b_proj) is LatentLinear
    after, _ = in_chunks(model, transformers.DynamicCache(config=model.config), (20, 4))
    assert torch.equal(before, after)
    again, _ = in_chunks(copy.deepcopy(model), paged(model), (20, 4))
    assert error(again, after, mask) < 1e-2


@pytest.mark.skipif(CACHE == "cache", reason="Transformers gives caches latents alone")
def test_keys_and_values_of_heads():
    """Without latents pages hold 4 heads of 48 and 32 features, also in fewer bits."""
    model = build()
    cache = paged(model, latent=False)
    in_chunks(model, cache, (20, 4))
    assert (cache.pages.kv_heads, cache.pages.head_dim, cache.pages.value_dim) == (4, 48, 32)
    assert cache.pages.token_bytes == 2 * 4 * (48 + 32) * model_zoo.LAYERS
    assert not paged(model, key="int8").is_latent


def test_refusals():
    model, (ids, mask) = build(), prompt()
    for formats, message in (
        (
            {"key": "int8"},
            "key: expected None, 'fp8_e4m3' or 'fp8_ds_mla' where values are a part of keys, got 'int8'",
        ),
        (
            {"key": "fp8", "value": "fp8"},
            "value: expected None for a cache of latents, whose values are a part of keys",
        ),
        ({"key_scales": "tensor"}, "key_scales: expected None without key, got 'tensor'"),
        ({"bogus": None}, "expected one of key, .*, got 'bogus'"),
    ):
        with pytest.raises(attn.PlanError, match=message):
            paged(model, latent=True, **formats)
    llama = model_zoo.build(transformers.LlamaForCausalLM, "attn", torch.float16)
    with pytest.raises(
        attn.PlanError,
        match="latent: expected False or None, as llama has no layers with latent attention, got True",
    ):
        paged(llama, latent=True)
    with pytest.raises(
        attn.TensorError, match="holds latents, and the model gives it keys and values of its heads"
    ):
        build(implementation="eager")(ids, **{CACHE: paged(model)})
    with pytest.raises(attn.TensorError, match=f"{CACHE}: DeepseekV3Attention: tensors of float32"):
        build(dtype=torch.float32)(ids, attention_mask=mask, **{CACHE: paged(model)})
    holes = mask.clone()
    holes[1, 7] = 0
    with pytest.raises(attn.TensorError, match="a mask that is more than causal with padding"):
        model(ids, attention_mask=holes, **{CACHE: paged(model)})
    with torch.enable_grad(), pytest.raises(attn.TensorError, match="a backward pass over a cache in pages"):
        model(ids, attention_mask=mask, **{CACHE: paged(model)})
    shared = build()
    for layer in shared.model.layers:  # Each has the weights of half the heads, as on one of two ranks.
        weight = layer.self_attn.kv_b_proj.weight
        layer.self_attn.kv_b_proj.weight = torch.nn.Parameter(weight[: len(weight) // 2])
    with pytest.raises(attn.TensorError, match="weights of all .* heads, .* on every rank, got"):
        shared(ids, attention_mask=mask, **{CACHE: paged(shared)})
    other = build()
    for layer in other.model.layers:
        layer.self_attn.kv_b_proj = torch.nn.Sequential(layer.self_attn.kv_b_proj)
    message = (
        "kv_b_proj over a cache of latents: expected a torch.nn.Linear without bias, .* got 'Sequential'"
    )
    with pytest.raises(attn.TensorError, match=message):
        other(ids, attention_mask=mask, **{CACHE: paged(model)})
