# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kept prompts: which of them a request begins with, what they cost, and requests of an engine that share them."""

import random

import pytest
from decoding import attn, build, paged
from test_engine import NEW, PAGES, alone, engine_of, prompts_of

prefixes = attn.generation.prefixes


def cache_of(pages=16):
    return attn.PagedCache(layers=1, pages=pages, page_size=4, kv_heads=1, head_dim=16, device="host")


def sequence(cache, count):
    node = cache.add()
    cache.append(node, count).skip()
    return node


# --- Kept sequences ------------------------------------------------------------------------------------------


def test_whole_pages_are_found():
    cache = cache_of()
    kept = prefixes.Prefixes(cache)
    text = list(range(11))
    node = sequence(cache, 11)
    kept.keep(node, text)
    assert len(kept) == 1 and cache.free_pages() == 13, "its pages are the sequence's"
    found, pages = kept.find([*text, 5], 9)
    assert pages == 2 and found != node
    assert kept.find(text, 1)[1] == 1 and kept.find(text[:7], 9)[1] == 1
    assert kept.find([9, *text], 9) == (None, 0) and kept.find(text[:3], 9) == (None, 0)
    assert kept.find([*text[:4], 9, 9, 9, 9], 9)[1] == 1
    assert kept.find([9, 9, 9, 9, *text[4:]], 9) == (None, 0), "a page counts with those before it alone"
    twin = kept.share(found, 1)
    assert cache.tokens(twin) == 4 and cache.free_pages() == 13
    cache.prune(node, twin)
    assert cache.free_pages() == 14
    kept.clear()
    assert cache.free_pages() == 16 and kept.find(text, 9) == (None, 0)


def test_longer_sequences_replace_those_they_begin_with():
    cache = cache_of()
    kept = prefixes.Prefixes(cache)
    kept.adopt(sequence(cache, 9), range(9))
    kept.adopt(sequence(cache, 14), range(14))
    assert len(kept) == 1 and cache.free_pages() == 13
    kept.adopt(sequence(cache, 9), range(9))
    assert len(kept) == 1 and cache.free_pages() == 13, "it is kept already"
    kept.adopt(sequence(cache, 9), [*range(4), 9, 9, 9, 9, 9])
    assert len(kept) == 2 and cache.free_pages() == 11, "pages that were not shared stay apart"
    kept.adopt(sequence(cache, 3), range(3))
    assert len(kept) == 2 and cache.free_pages() == 11, "it fills no page"


def test_those_shared_last_are_freed_last():
    cache = cache_of(pages=9)
    kept = prefixes.Prefixes(cache)
    for first in (0, 100, 200):
        kept.adopt(sequence(cache, 12), range(first, first + 12))
    assert cache.free_pages() == 0
    twin = kept.share(*kept.find(range(12), 3))
    kept.free(2)
    assert [kept.find(range(first, first + 12), 3)[1] for first in (0, 100, 200)] == [3, 0, 3]
    node, _ = kept.find(range(200, 212), 3)
    kept.free(9, but=node)
    assert len(kept) == 1 and cache.free_pages() == 3, "the twin's pages stay"
    cache.prune(twin)
    assert cache.free_pages() == 6


def test_no_room_to_keep():
    cache = cache_of(pages=3)
    kept, node = prefixes.Prefixes(cache), sequence(cache, 11)
    kept.keep(node, range(11))
    assert len(kept) == 0 and cache.free_pages() == 0 and cache.tokens(node) == 11
    kept.adopt(node, range(11))
    assert len(kept) == 1 and cache.free_pages() == 1


def test_random_sequences():
    """Against lists: the longest prefix in whole pages of what is kept, and no page lost."""
    chance = random.Random(5)
    cache = cache_of(pages=64)
    kept, texts = prefixes.Prefixes(cache), {}
    for _ in range(400):
        text = [chance.randrange(2) for _ in range(chance.randrange(1, 20))]
        node, pages = kept.find(text, 9)
        held = [each for each in texts.values() if each is not None]
        best = max(
            (n for each in held for n in range(len(text) // 4 + 1) if each[: 4 * n] == text[: 4 * n]),
            default=0,
        )
        assert pages == best
        twin = cache.add() if node is None else kept.share(node, pages)
        cache.append(twin, len(text) - 4 * pages).skip() if len(text) > 4 * pages else None
        if chance.random() < 0.5:
            kept.adopt(twin, text)
        else:
            cache.prune(twin)
        if chance.random() < 0.2:
            kept.free(chance.randrange(64))
        texts = {node: _text_of(kept, node, texts, text) for node in kept._kept}
    kept.clear()
    assert cache.free_pages() == 64 and not cache.sequences


def _text_of(kept, node, texts, text):
    return texts[node] if node in texts else text[: 4 * len(kept._kept[node])]


# --- An engine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formats", [{}, {"key": "int8", "value": "int4"}], ids=["16 bits", "K8V4"])
def test_requests_share_what_earlier_ones_have_read(formats):
    """A second request, a longer one, one that goes on behind an answer, and one with other tokens in between."""
    model = build()
    (prompt,) = prompts_of((21,))
    engine = engine_of(model, cache=paged(model, PAGES, **formats), prefix_cache=True)

    def ask(ids, cached):
        (output,) = engine.generate([ids], max_new_tokens=NEW)
        expected = paged(model, **formats) if formats else None
        assert output.token_ids == alone(model, ids, past_key_values=expected)
        assert output.cached_tokens == cached
        return output

    first = ask(prompt, 0)
    ask(prompt, 20)
    ask(prompt[:20], 16)  # Its last token is read.
    chat = prompt.new_tensor([*prompt.tolist(), *first.token_ids, 5, 6, 7])
    ask(chat, 24)  # The 27 tokens that were written fill six pages.
    other = chat.clone()
    other[9] = 89
    ask(other, 8)
    engine.reset_prefix_cache()
    assert engine.cache.pages.free_pages() == PAGES
    ask(prompt, 0)


def test_requests_at_once_share_a_prompt_that_was_read():
    """Requests that were admitted later share with one that still decodes."""
    model = build()
    (prompt,) = prompts_of((18,))
    prompts = [prompt.new_tensor([*prompt.tolist(), more]) for more in (5, 6, 7, 8)]
    engine = engine_of(model, sequences=1, rows=32, prefix_cache=True)
    found = engine.generate(prompts, max_new_tokens=3)
    assert [each.cached_tokens for each in found] == [0, 16, 16, 16]
    assert [each.token_ids for each in found] == [alone(model, each, 3) for each in prompts]


def test_kept_pages_go_before_requests():
    """Pages run out: what is kept is freed first, and requests are sent back only then."""
    model, prompts = build(), prompts_of((10, 11, 9))
    engine = engine_of(model, pages=15, rows=33, prefix_cache=True)
    for _ in range(2):
        found = engine.generate(prompts, max_new_tokens=12)
        assert [each.token_ids for each in found] == [alone(model, prompt, 12) for prompt in prompts]
    small = engine_of(model, pages=9, rows=33, prefix_cache=True)
    found = small.generate(prompts, max_new_tokens=12)
    assert small.sent_back > 0
    assert [each.token_ids for each in found] == [alone(model, prompt, 12) for prompt in prompts]
    small.reset_prefix_cache()
    assert small.cache.pages.free_pages() == 9


def test_an_engine_that_is_gone_keeps_nothing():
    model = build()
    cache = paged(model, PAGES)
    engine = engine_of(model, cache=cache, prefix_cache=True)
    engine.generate(prompts_of((9,)), max_new_tokens=2)
    assert cache.pages.free_pages() < PAGES
    del engine
    assert cache.pages.free_pages() == PAGES


def test_weights_that_change():
    """After a reset no request sees keys and values of the old weights."""
    model = build()
    (prompt,) = prompts_of((17,))
    engine = engine_of(model, prefix_cache=True)
    engine.generate([prompt], max_new_tokens=NEW)
    model.load_state_dict(build(seed=2).state_dict())
    engine.reset_prefix_cache()
    (output,) = engine.generate([prompt], max_new_tokens=NEW)
    assert output.cached_tokens == 0 and output.token_ids == alone(model, prompt)
