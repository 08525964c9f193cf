# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of every format in an engine's memory, and new tokens whose places all layers share."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
import attn.serving.tokens as serving_tokens  # noqa: E402
from attn.serving import KeptPages, Layer, Plans, Tokens, split_lines, write_tokens  # noqa: E402

PAGES, PAGE, HEADS, DIM = 6, 16, 2, 64
DTYPES = {None: torch.float16, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def layer_of(format=None, **changes):
    sizes = dict(q_heads=4, kv_heads=HEADS, head_dim=DIM, dtype="float16", page_size=PAGE)
    return Layer(**sizes | dict(format=format) | changes)


def cache_of(format=None):
    """An engine's cache [pages, heads, page, elements], tokens before heads, in memory of its exact size."""
    dtype = torch.float16 if format is None else torch.uint8
    return torch.zeros(PAGES, PAGE, HEADS, 2 * DIM, dtype=dtype).transpose(1, 2)


def tokens(count, seed=0):
    torch.manual_seed(seed)
    return torch.randn(2, count, HEADS, DIM, dtype=torch.float16).unbind(0)


@pytest.mark.parametrize("format", DTYPES)
def test_pages_hold_what_write_tokens_writes(format):
    slots, (k, v) = torch.tensor([95, -1, 0, 33]), tokens(4)
    scales = {} if format is None else dict(k_scale=torch.tensor(0.5), v_scale=torch.tensor([2.0]))
    first, second = cache_of(format), cache_of(format)
    layer_of(format).pages(first, **scales).write(k, v, slots)
    write_tokens(*split_lines(second.view(DTYPES[format]), DIM), k, v, slots, **scales)
    assert first.any() and torch.equal(first, second)


@pytest.mark.parametrize("format", DTYPES)
def test_kernels_read_pages(format):
    layer, cache, (k, v) = layer_of(format), cache_of(format), tokens(20)
    scales = {} if format is None else dict(k_scale=torch.tensor(0.5), v_scale=torch.tensor(2.0))
    pages = layer.pages(cache, **scales)
    table = torch.tensor([[4, 1]])
    slots = torch.tensor([*range(64, 80), *range(16, 20)])
    pages.write(k, v, Tokens(slots))
    q = torch.randn(20, 4, DIM, dtype=torch.float16)
    out = Plans().step([0, 20], [20], table).run(layer.compile("cpu"), q, pages)
    kept_k, kept_v = (
        part.float().flatten(0, 1)[slots] * (scale if format else 1.0)
        for part, scale in zip(pages[:2], (0.5, 2.0), strict=True)
    )
    group = [head // 2 for head in range(4)]
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q.double().transpose(0, 1),
        kept_k.double().transpose(0, 1)[group],
        kept_v.double().transpose(0, 1)[group],
        is_causal=True,
    ).transpose(0, 1)
    torch.testing.assert_close(out.double(), wanted, atol=4e-3, rtol=4e-3)


def test_a_change_of_a_scale_is_seen():
    scale = torch.tensor(1.0)
    cache, (k, v) = cache_of("fp8_e4m3"), tokens(1)
    pages = layer_of("fp8_e4m3").pages(cache, k_scale=scale)
    scale.fill_(2.0)
    pages.write(k, v, torch.tensor([3]))
    torch.testing.assert_close(pages[0][0, 3].float() * 2, k[0].float(), atol=2e-3, rtol=2**-3)


def test_layers_share_the_list_of_new_tokens(monkeypatch):
    made, words_of = [], serving_tokens.words_of
    monkeypatch.setattr(serving_tokens, "words_of", lambda room: made.append(room) or words_of(room))
    step, caches = Tokens(torch.tensor([7, -1, 90])), [cache_of(format) for format in DTYPES]
    for seed, (format, cache) in enumerate(zip(DTYPES, caches, strict=True)):
        layer_of(format).pages(cache).write(*tokens(3, seed), step)
        assert cache.any()
    assert len(made) == 1
    large = torch.zeros(PAGES // 2, HEADS, 2 * PAGE, 2 * DIM, dtype=torch.float16)
    k, v = tokens(3)
    layer_of(page_size=2 * PAGE).pages(large).write(k, v, step)  # Pages of another size.
    assert len(made) == 1 and torch.equal(large[90 // 32, :, 90 % 32, :DIM], k[2])


def test_graphs_have_lists_of_their_own(monkeypatch):
    step = Tokens(torch.tensor([7, 3]), torch.tensor([1, 0]))
    found = []
    for graph in (1, 1, 2, 0):
        monkeypatch.setattr(Tokens, "_graph", lambda self, graph=graph: graph)
        found.append((step.words.data_ptr(), step._at_positions().data_ptr()))
    assert found[0] == found[1]
    for part in zip(*found, strict=True):
        assert len(set(part)) == 3


def test_kept_pages_are_made_again_for_another_cache():
    kept, first, second = KeptPages(layer_of()), cache_of(), cache_of()
    pages = kept.of(first)
    assert kept.of(first.view(first.shape)) is pages
    assert kept.of(second) is not pages and kept.of(second).cache.data_ptr() == second.data_ptr()
    scaled, scale = KeptPages(layer_of("fp8_e4m3")), torch.tensor(2.0)
    cache = cache_of("fp8_e4m3")
    pages = scaled.of(cache, k_scale=scale)
    assert scaled.of(cache, k_scale=scale) is pages and scaled.of(cache, k_scale=scale.clone()) is not pages


REFUSED = {
    "slots, shape": (lambda: Tokens(torch.tensor([[3]])), r"slots: expected int32 or int64 \[tokens\]"),
    "slots, dtype": (lambda: Tokens(torch.tensor([3.0])), r"slots: expected int32 or int64 \[tokens\]"),
    "slot": (
        lambda: layer_of().pages(cache_of()).write(*tokens(2), Tokens(torch.tensor([3, 96]))),
        r"slots: expected below 96 \(6 pages of 16 tokens\), got 96; nearest legal: 95",
    ),
    "rows": (
        lambda: layer_of().pages(cache_of()).write(*tokens(1), Tokens(torch.tensor([3, 5]))),
        r"k: expected \[2 or more, 2, 64\]",
    ),
    "cache": (
        lambda: layer_of().pages(cache_of()[..., 1:]),
        r"cache: expected \[pages, heads, page_size, 128\]",
    ),
    "elements": (lambda: layer_of("fp8_e5m2").pages(cache_of()), "cache: expected elements of a byte"),
    "scale": (
        lambda: layer_of().pages(cache_of(), k_scale=torch.ones(1)),
        "k_scale: expected none beside pages of torch.float16, got one",
    ),
    "scales": (
        lambda: layer_of("fp8_e5m2").pages(cache_of("fp8_e5m2"), v_scale=torch.ones(2)),
        r"v_scale: expected float32 \[1\] on cpu",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    act, message = REFUSED[name]
    with pytest.raises(attn.TensorError, match=message):
        act()
