# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's paged cache under Transformers' models: those that it serves, and those that it refuses by name."""

import copy
import inspect
import os
import pickle

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.transformers_config import CACHE  # noqa: E402

PADDING, ROWS = (5, 0, 11), 24
# GPTNeoX and OPT have no num_key_value_heads; DeepSeek has latents (test_transformers_latents.py);
# Gemma2 has windows and soft caps; GPT-OSS has sinks.
SERVED = ("GPTNeoX", "OPT", "DeepseekV3", "Gemma2", "GptOss")


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def build(name, implementation="attn", dtype=torch.float16, **changes):
    return model_zoo.build(getattr(transformers, f"{name}ForCausalLM"), implementation, dtype, **changes)


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
    takes = "position_ids" in inspect.signature(model.forward).parameters
    for size in sizes:
        part = {"position_ids": positions[:, at : at + size]} if takes else {}
        shown = mask[:, : at + size]
        out = model(ids[:, at : at + size], attention_mask=shown, past_key_values=cache, **part)
        found.append(out.logits.float())
        at += size
    return torch.cat(found, 1), mask.bool()


def error(ours, exact, mask):
    return ((ours - exact).norm(dim=-1) / exact.norm(dim=-1))[mask].mean()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_float32_model_attends_in_the_dtype_of_its_pages(dtype):
    """Logits are float32's but for the rounding of keys, values and queries: far closer than those of the model in 16 bits."""
    exact, shown = in_chunks(build("Llama", "eager", torch.float32), None, (ROWS,))
    found = []
    for own in (torch.float32, dtype):
        model = build("Llama", dtype=own)
        cache = attn.transformers.PagedCache(model.config, pages=32, dtype=dtype)
        logits, _ = in_chunks(model, cache, (20, 3, 1))
        assert cache.pages.layer(0).tensors()["k_pages"].dtype == dtype
        found.append((logits - exact)[shown].square().mean().sqrt().item())
    assert 0 < found[0] < found[1] / 2, found


@pytest.mark.parametrize("name", SERVED)
def test_chunks_of_a_padded_prompt(name):
    """The first chunk is all padding to one sequence, the second begins in the padding of none."""
    model, chunks = build(name), (3, 7, 13, 1)
    cache = attn.transformers.PagedCache(model.config, pages=64, page_size=4)
    ours, mask = in_chunks(model, cache, chunks)
    exact, _ = in_chunks(build(name, "eager", torch.float32), None, (ROWS,))
    rounded, _ = in_chunks(build(name, "eager"), None, (ROWS,))
    assert error(ours, exact, mask) <= 3 * error(rounded, exact, mask) + 4e-3
    assert [cache.pages.tokens(node) for node in cache.nodes] == [ROWS - count for count in PADDING]
    cache.reset()
    assert cache.pages.free_pages() == 64


@pytest.mark.parametrize("sizes", [(1,) * ROWS, (3, *(1,) * 21)])
def test_a_static_cache_reads_a_padded_prompt_token_by_token(sizes, monkeypatch):
    """Sequences are all padding at first, and none of their rows sees a token yet. The device plans these steps."""
    planned, attend = [], attn.adapters.layer_calls.attend_step
    monkeypatch.setattr(
        attn.adapters.layer_calls, "attend_step", lambda *given: planned.append(1) or attend(*given)
    )
    found = []
    for kind in (("attn",), ("eager", torch.float32), ("eager",)):
        model = build("Llama", *kind)
        cache = transformers.StaticCache(config=model.config, max_cache_len=ROWS + 4)
        found.append(in_chunks(model, cache, sizes))
    (ours, mask), (exact, _), (rounded, _) = found
    assert error(ours, exact, mask) <= 3 * error(rounded, exact, mask) + 4e-3
    assert planned


def test_a_chunk_that_is_padding_to_all():
    model = build("Llama")
    ids, mask = torch.full((2, 8), 5), torch.tensor([[0] * 5 + [1] * 3, [0] * 4 + [1] * 4])
    cache = attn.transformers.PagedCache(model.config, pages=8)
    model(ids[:, :4], attention_mask=mask[:, :4], past_key_values=cache)
    assert [cache.pages.tokens(node) for node in cache.nodes] == [0, 0]
    model(ids[:, 4:], attention_mask=mask, past_key_values=cache)
    assert [cache.pages.tokens(node) for node in cache.nodes] == [3, 4]


@pytest.mark.parametrize(
    "name,changes,message",
    [
        ("Qwen3Next", {}, "qwen3_next has layers of linear_attention; PagedCache takes full and sliding"),
        ("Llama4", {}, "llama4_text has layers of chunked_attention"),
        ("Bart", {"is_encoder_decoder": True}, "bart is an encoder with a decoder"),
        ("Gemma3n", {"num_kv_shared_layers": 2}, "layers of gemma3n_text share keys and values"),
    ],
)
def test_models_that_it_refuses(name, changes, message):
    kind = getattr(transformers, f"{name}ForCausalLM").config_class
    kind = transformers.Llama4TextConfig if name == "Llama4" else kind
    kind = transformers.Gemma3nTextConfig if name == "Gemma3n" else kind
    with pytest.raises(attn.PlanError, match=message):
        attn.transformers.PagedCache(model_zoo.tiny(kind, **changes), pages=64)


@pytest.mark.parametrize(
    "name,implementation",
    [
        ("Llama", "sdpa"),
        ("Llama", "eager"),
        ("Bloom", "attn"),
        ("JetMoe", "attn"),
    ],
)
@pytest.mark.filterwarnings("ignore::attn.transformers.FallbackWarning")
def test_no_other_attention_gets_its_keys(name, implementation):
    """Another attention would get the new keys alone. JetMoE repeats keys before attention, each head for each of its
    experts."""
    model = build(name, implementation)
    cache = attn.transformers.PagedCache(model.config, pages=64)
    with pytest.raises(attn.TensorError, match="the model computes with its keys itself"):
        model(prompt()[0], past_key_values=cache)


def test_what_attention_cannot_read_from_pages():
    model = build("Llama", dtype=torch.float32)
    with pytest.raises(attn.TensorError, match=f"{CACHE}: LlamaAttention: tensors of float32"):
        model(prompt()[0], past_key_values=attn.transformers.PagedCache(model.config, pages=64))
    model, (ids, mask) = build("Llama"), prompt()
    mask[1, 7] = 0
    with pytest.raises(attn.TensorError, match="a mask that is more than causal with padding"):
        model(ids, attention_mask=mask, past_key_values=attn.transformers.PagedCache(model.config, pages=64))


def test_layers_of_other_sizes():
    """Gemma4's full layers have longer heads than its windowed layers."""
    model = build("Gemma4", attention_k_eq_v=False, global_head_dim=64, num_kv_shared_layers=0)
    cache = attn.transformers.PagedCache(model.config, pages=64)
    with pytest.raises(
        attn.TensorError, match="layer 1: expected .*'head_dim': 32.*, as in layer 0, got .*64"
    ):
        model(prompt()[0], past_key_values=cache)


@pytest.mark.parametrize(
    "formats,tolerance", [({"key": "int8", "value": "int8"}, 0.02), ({"value": "fp8_e4m3"}, 0.06)]
)
def test_pages_of_codes(formats, tolerance):
    """Logits over quantized pages are near those over 16-bit pages, and differ from them."""
    model, chunks = build("Llama"), (20, 1, 1, 2)
    exact, mask = in_chunks(model, attn.transformers.PagedCache(model.config, pages=64), chunks)
    cache = attn.transformers.PagedCache(model.config, pages=64, **formats)
    ours, _ = in_chunks(model, cache, chunks)
    assert 0 < error(ours, exact, mask) <= tolerance
    held = 2 * cache.pages.layers * cache.pages.kv_heads * cache.pages.head_dim
    assert held / 2 < cache.pages.token_bytes < 2 * held
    ids, shown = prompt()
    made = model.generate(
        ids,
        attention_mask=shown,
        max_new_tokens=5,
        do_sample=False,
        past_key_values=attn.transformers.PagedCache(model.config, pages=64, **formats),
    )
    assert made.shape == (3, ROWS + 5)


@pytest.mark.parametrize(
    "formats,message",
    [
        ({"keys": "int8"}, "PagedCache: expected one of key, key_group, .* got 'keys'; nearest legal: 'key'"),
        ({"key": "fp8_e4m3", "key_scales": "head"}, "key_scales: expected 'token', or None, got 'head'"),
    ],
)
def test_formats_that_it_refuses(formats, message):
    with pytest.raises(attn.PlanError, match=message):
        attn.transformers.PagedCache(build("Llama").config, pages=64, **formats)


def prompt_and_suffixes():
    """Return a prompt, and two texts that begin with it."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(3, 90, (1, 21), generator=generator)
    return ids, [torch.cat([ids, torch.randint(3, 90, (1, n), generator=generator)], 1) for n in (3, 6)]


def generate_alone(model, prompt_ids, text, options):
    """Generate over a cache that shares no pages and reads the prompt in the same parts."""
    cache = attn.transformers.PagedCache(model.config, pages=16, page_size=4)
    model(prompt_ids, past_key_values=cache)
    return model.generate(text, past_key_values=cache, **options)


def test_a_prompts_cache_is_copied_for_each_suffix():
    """A copy of a prompt's cache, as Transformers' guide to caches makes it, shares whole pages. A deleted copy frees
    its own pages."""
    model, (prompt_ids, texts) = build("Llama"), prompt_and_suffixes()
    options = {"max_new_tokens": 6, "do_sample": False}
    shared = attn.transformers.PagedCache(model.config, pages=10, page_size=4)
    model(prompt_ids, past_key_values=shared)
    pages, (node,) = shared.pages, shared.nodes
    assert pages.free_pages() == 4  # five of a prompt's six pages are full
    for text in 3 * texts:  # the pool has no pages for all texts unless deleted copies free theirs
        branch = copy.deepcopy(shared)
        assert branch.pages is pages and branch.nodes != shared.nodes and branch.length == 21
        ours = model.generate(text, past_key_values=branch, **options)
        assert torch.equal(ours, generate_alone(model, prompt_ids, text, options))
        assert (shared.length, pages.tokens(node)) == (21, 21)
        assert pages.free_pages() == 10 - 5 - 1 - -(-(text.shape[1] + 5 - 20) // 4)
        del branch
    shared.reset()
    assert pages.free_pages() == 10


def test_a_copy_outlives_what_it_was_made_from():
    model, (prompt_ids, texts) = build("Llama"), prompt_and_suffixes()
    options = {"max_new_tokens": 4, "do_sample": False}
    shared = attn.transformers.PagedCache(model.config, pages=16, page_size=4)
    model(prompt_ids, past_key_values=shared)
    branch, again = copy.deepcopy(shared), copy.copy(shared)
    del shared
    for cache, text in zip((branch, again), texts, strict=True):
        ours = model.generate(text, past_key_values=cache, **options)
        assert torch.equal(ours, generate_alone(model, prompt_ids, text, options))
    branch.reset()
    again.reset()
    assert again.pages.free_pages() == 16


def test_a_copy_for_which_pages_run_out_changes_nothing():
    model, (prompt_ids, _) = build("Llama"), prompt_and_suffixes()
    cache = attn.transformers.PagedCache(model.config, pages=12, page_size=4)
    model(prompt_ids.repeat(2, 1)[:, :21], past_key_values=cache)
    assert cache.pages.free_pages() == 0
    for _ in range(2):
        with pytest.raises(attn.OutOfPages):
            copy.deepcopy(cache)
    cache.reset()
    assert cache.pages.free_pages() == 12


def test_copies_of_an_empty_cache_are_apart():
    model, (_, texts) = build("Llama"), prompt_and_suffixes()
    cache = attn.transformers.PagedCache(model.config, pages=16, page_size=4)
    branch = copy.deepcopy(cache)
    for each, text in zip((cache, branch), texts, strict=True):
        model(text, past_key_values=each)
        assert each.length == text.shape[1]
    assert cache.pages is not branch.pages


def test_caches_that_cannot_be_copied_say_what_can():
    config = build("Llama").config
    with pytest.raises(TypeError, match=r"PagedCache cannot be pickled: .* copy\.deepcopy"):
        pickle.dumps(attn.transformers.PagedCache(config, pages=4))
    cache = attn.transformers.DiffKVCache(
        config, attn.kv_policy.DiffKV(alpha_high=1, alpha_low=0.1), pages=4096
    )
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(
            TypeError, match=r"DiffKVCache cannot be copied .* take attn\.transformers\.PagedCache"
        ):
            way(cache)


def test_beams_that_find_no_pages():
    """The cache goes on with the sequences that it had."""
    model = model_zoo.build(transformers.LlamaForCausalLM, "attn", torch.float16)
    cache = attn.transformers.PagedCache(model.config, pages=5)
    ids = torch.randint(3, 90, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model(ids, attention_mask=torch.ones_like(ids), past_key_values=cache)
    with pytest.raises(attn.OutOfPages):
        cache.batch_repeat_interleave(3)
    assert len(cache.nodes) == len(cache.shown) == 2 and cache.pages.free_pages() == 1
    cache.crop(20)
    assert [cache.pages.tokens(node) for node in cache.nodes] == [20, 20]
