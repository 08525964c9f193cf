# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Beam search and assisted generation over attn's paged cache: tokens of SDPA over a dynamic cache, in fewer pages."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.transformers_config import CACHE  # noqa: E402

ROWS, NEW = 21, 12
PADDING = (5, 0, 11)
PAGE = 4


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def build(implementation, name="Llama", seed=1, dtype=torch.float16, **changes):
    changes = {"initializer_range": 0.05} | changes
    return model_zoo.build(
        getattr(transformers, f"{name}ForCausalLM"), implementation, dtype, seed, **changes
    )


def prompt(batch=3, rows=ROWS, seed=0):
    ids = torch.randint(3, 90, (batch, rows), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    for row, count in enumerate(PADDING[:batch] if batch > 1 else (0,)):
        ids[row, :count], mask[row, :count] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def pages_of(model, pages=256):
    return attn.transformers.PagedCache(model.config, pages=pages, page_size=PAGE)


def noisy(model, size=1e-3):
    """Add noise to weights, several times as large as float16's rounding."""
    random = torch.Generator().manual_seed(7)
    for weight in model.parameters():
        weight.mul_(1 + size * torch.randn(weight.shape, generator=random))
    return model


def settled(make, generate, first=0):
    """Return a seed whose choices rounding cannot change, as SDPA makes them over a dynamic cache, and these choices.
    `first` is such a seed that was found before."""
    for seed in range(first, 60):
        exact = generate(make("sdpa", seed=seed, dtype=torch.float32))
        others = (
            generate(noisy(make("sdpa", seed=seed, dtype=torch.float32), size)) for size in (1e-3, -2e-3)
        )
        if all(torch.equal(exact.sequences, of.sequences) for of in others):
            return seed, exact
    return pytest.fail("no seed gives a model whose choices are clear")


# --- Assisted generation -------------------------------------------------------------------------------------


@pytest.fixture
def cuts(monkeypatch):
    """Return a list of the number of tokens that each truncation removed."""
    truncate, counts = attn.PagedCache.truncate, []

    def counted(cache, leaf, tokens):
        counts.append(tokens)
        truncate(cache, leaf, tokens)

    monkeypatch.setattr(attn.PagedCache, "truncate", counted)
    return counts


def assistant_of(model):
    """Return a model that is nearly the same Llama, so that some of its candidates are right. Transformers takes no
    assistant with windows."""
    noisy(model, 0.15)
    model.generation_config.num_assistant_tokens = 5
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@pytest.mark.parametrize(
    "name,help", [("Llama", "assistant"), ("Llama", "prompt lookup"), ("Mistral", "prompt lookup")]
)
def test_assisted_generation(name, help, cuts):
    options = {"max_new_tokens": 16, "do_sample": False, "return_dict_in_generate": True}
    inputs = prompt(batch=1)
    inputs["input_ids"][:, 7:] = inputs["input_ids"][:, :14].clone()  # repeats, for prompt lookup

    def make(implementation, **named):
        return build(implementation, name, **named)

    seed, plain = settled(make, lambda model: model.generate(**inputs, **options))

    def generate(implementation, cache_of):
        model, by = make(implementation, seed=seed), {"prompt_lookup_num_tokens": 4}
        if help == "assistant":
            by = {"assistant_model": assistant_of(build("sdpa", seed=seed))}
        cache = cache_of(model)
        return model.generate(**inputs, **options, **by, past_key_values=cache), cache

    if name == "Llama":  # a dynamic cache with a window cannot be cropped
        theirs, _ = generate("sdpa", lambda model: transformers.DynamicCache())
        assert torch.equal(theirs.sequences, plain.sequences) and not cuts
    ours, cache = generate("attn", pages_of)
    assert torch.equal(ours.sequences, plain.sequences)
    assert sum(cuts) > 2
    held = ours.sequences.shape[1] - 1
    assert cache.get_seq_length() == held == cache.pages.tokens(cache.nodes[0])
    assert cache.pages.free_pages() == 256 - -(-held // PAGE)


def test_crops_of_a_padded_batch():
    """Each sequence loses its tokens after the columns that stay, and a chunk of padding takes no page."""
    model, inputs = build("attn"), prompt()
    cache = pages_of(model)
    places = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    whole = model(**inputs, position_ids=places, past_key_values=cache).logits
    for length in (ROWS + 5, ROWS, 17, 9, -2):
        cache.crop(length)
        length = min(length, ROWS) if length > 0 else 7
        assert cache.get_seq_length() == length
        held = [max(length - count, 0) for count in PADDING]
        assert [cache.pages.tokens(node) for node in cache.nodes] == held
        assert cache.pages.free_pages() == 256 - sum(-(-n // PAGE) for n in held)
    for size in (3, 11):
        length = cache.get_seq_length() + size
        mask = inputs["attention_mask"][:, :length]
        part = inputs["input_ids"][:, length - size : length]
        at = places[:, length - size : length]
        again = model(part, attention_mask=mask, position_ids=at, past_key_values=cache).logits
    shown = inputs["attention_mask"][:, -11:].bool()
    torch.testing.assert_close(again[shown], whole[:, -11:][shown], atol=5e-3, rtol=5e-2)


# --- Beams ---------------------------------------------------------------------------------------------------

BEAMS = 4


@pytest.mark.parametrize("name,first,options", [("Llama", 4, {}), ("Mistral", 3, {"length_penalty": 0.5})])
def test_beam_search(name, first, options):
    inputs = prompt()
    options = {"max_new_tokens": NEW, "num_beams": BEAMS, "num_return_sequences": 3} | options
    options |= {"do_sample": False, "return_dict_in_generate": True, "output_scores": True}

    def make(implementation, **named):
        return build(implementation, name, **named, eos_token_id=None)

    seed, exact = settled(make, lambda model: model.generate(**inputs, **options), first)
    model = make("attn", seed=seed)
    cache = pages_of(model)
    ours = model.generate(**inputs, **options, past_key_values=cache)
    assert torch.equal(ours.sequences, exact.sequences)
    torch.testing.assert_close(ours.sequences_scores, exact.sequences_scores, atol=1e-2, rtol=1e-2)
    # Copied beams would each hold their own pages.
    tokens = [cache.pages.tokens(node) for node in cache.nodes]
    assert len(tokens) == 3 * BEAMS and tokens[0] == cache.get_seq_length() - PADDING[0]
    copied = sum(-(-count // PAGE) for count in tokens)
    held = 256 - cache.pages.free_pages()
    shared = sum((ROWS - count) // PAGE for count in PADDING)
    assert held <= copied - (BEAMS - 1) * shared
    cache.reset()
    assert cache.pages.free_pages() == 256


def test_sequences_are_chosen_as_a_dynamic_cache_chooses_them():
    """Beams that end, continue twice or change places, and batches that grow and shrink, are selected as in a dynamic
    cache."""
    random = torch.Generator().manual_seed(3)
    model, exact, inputs = build("attn"), build("sdpa", dtype=torch.float32), prompt()
    ours, theirs = pages_of(model), transformers.DynamicCache(config=exact.config)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    at = (mask.cumsum(1) - 1).clamp(min=0)
    model(ids, attention_mask=mask, position_ids=at, past_key_values=ours)
    exact(ids, attention_mask=mask, position_ids=at, past_key_values=theirs)
    for step in range(24):
        count = len(mask)
        if step % 6 == 0:
            chosen = torch.arange(count).repeat_interleave(2)
            for cache in (ours, theirs):
                cache.batch_repeat_interleave(2)
        elif step % 6 == 5:
            keep = torch.randperm(count, generator=random)[:3].sort().values
            chosen = keep if step < 12 else torch.zeros(count, dtype=torch.bool).index_fill(0, keep, True)
            for cache in (ours, theirs):
                cache.batch_select_indices(chosen)
        else:
            chosen = torch.randint(count, (count,), generator=random)
            for cache in (ours, theirs):
                cache.reorder_cache(chosen)
        mask = torch.cat([mask[chosen], torch.ones(len(mask[chosen]), 1, dtype=mask.dtype)], 1)
        at = mask.sum(1, keepdim=True) - 1
        new = torch.randint(3, 90, (len(mask), 1), generator=random)
        found = model(new, attention_mask=mask, position_ids=at, past_key_values=ours).logits
        right = exact(new, attention_mask=mask, position_ids=at, past_key_values=theirs).logits
        assert (found.float() - right).norm() <= 5e-3 * right.norm(), step
    ours.pages._native.check_invariants()


def test_beams_beyond_the_pages():
    model, inputs = build("attn"), prompt()
    needed = sum(-(-(ROWS - count) // PAGE) for count in PADDING)
    cache = pages_of(model, pages=needed + 1)
    model(**inputs, past_key_values=cache)
    with pytest.raises(attn.OutOfPages, match="fork of node"):
        cache.batch_repeat_interleave(2)
    cache.reset()
    assert cache.pages.free_pages() == needed + 1
    model(**inputs, past_key_values=cache)
    with pytest.raises(attn.PlanError, match=f"{CACHE}: beams: expected numbers of 3 sequences, got 3"):
        cache.reorder_cache(torch.tensor([0, 1, 3]))
    assert cache.get_seq_length() == ROWS and len(cache.nodes) == 3
