# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prompts of streaming heads that are read in chunks: exact, in as many pages as a chunk needs."""

import attn
import numpy
import oracle
import pytest
from attn.cache.paged import PagedCache
from attn.cache.state import CacheClass

SINK, RECENT, TOKENS, PAGE, DIM = 20, 140, 403, 16, 64
CLASSES = [0, 1]
NUMBERS = numpy.random.default_rng(0)
Q = NUMBERS.standard_normal((TOKENS, 4, DIM)).astype(numpy.float16)
K, V = NUMBERS.standard_normal((2, TOKENS, 2, DIM)).astype(numpy.float16)


def kernel_of(own_store, schedule):
    kv = [attn.Paged(name="kv")]
    if own_store:
        kv = [attn.Paged(name="all", head_class="retrieval"), attn.Paged(name="few", head_class="streaming")]
    return attn.compile(
        attn.Spec(
            **{
                "q_heads": 4,
                "kv_heads": 2,
                "head_dim": DIM,
                "dtype": "float16",
                "kv": kv,
                "see": attn.causal(),
            },
            heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(SINK) | attn.recent(RECENT)),
            numerics="row",
        ),
        device="host",
        schedule=schedule,
    )


def read(kernel, own_store, chunks):
    """Read the prompt in chunks of these sizes. Return outputs and LSEs of all rows, and the largest number of
    streaming pages in use."""
    kept = {"pages": 40} if not own_store else {}
    if own_store:
        kept["classes"] = [
            CacheClass(name="retrieval", pages=40, heads=1),
            CacheClass(name="streaming", pages=40, heads=1, recent=RECENT, sink=SINK),
        ]
    cache = PagedCache(layers=1, kv_heads=2, head_dim=DIM, dtype="float16", device="host", **kept)
    node, at, outs, pages = cache.add(), 0, [], []
    for count in chunks:
        change, rows = cache.append([node], [count]), slice(at, at + count)
        change.write(0, K[rows], V[rows], **({"classes": CLASSES} if own_store else {}))
        plan = kernel.plan(cache.batch([(node, count)], classes=CLASSES))
        outs.append(kernel.run(Q[rows], cache.layer(0), plan, return_lse=True))
        pages.append(40 - cache.free_pages("streaming" if own_store else None))
        at += count
    assert at == TOKENS
    return *(numpy.concatenate(part) for part in zip(*outs, strict=True)), pages


@pytest.mark.parametrize("schedule", ("mma", "wgmma"))
@pytest.mark.parametrize("own_store", (False, True))
def test_any_chunks_give_the_same_bits(own_store, schedule):
    """Any chunks give the bits of one chunk in both classes, whether streaming heads keep all tokens or free those that
    they do not see."""
    kernel = kernel_of(own_store, schedule)
    out, lse, _ = read(kernel, own_store, [TOKENS])
    random = numpy.random.default_rng(1)
    cuts = [numpy.sort(random.choice(numpy.arange(1, TOKENS), n, replace=False)) for n in (3, 20)]
    for chunks in (
        [16] * 25 + [3],
        [129, 128, 146],
        [7, 200, 196],
        *(numpy.diff(c, prepend=0, append=TOKENS) for c in cuts),
    ):
        chunks = [int(count) for count in chunks]
        parts, of_rows, pages = read(kernel, own_store, chunks)
        assert parts.tobytes() == out.tobytes() and of_rows.tobytes() == lse.tobytes()
        if own_store:  # whole pages of sink, recent and chunk, and one for a chunk that begins within a page
            assert max(pages) <= -(-SINK // PAGE) + -(-RECENT // PAGE) + -(-max(chunks) // PAGE) + 1
            assert pages[-1] < -(-TOKENS // PAGE)


@pytest.mark.parametrize("chunks", ([TOKENS], [100, 200, 103], [1, 2, 37, 163, 200], [TOKENS - 1, 1]))
def test_any_chunks_are_exact(chunks):
    """Every row sees its sink and all of its recent tokens, wherever chunks end: outputs match float64."""
    out, lse, _ = read(kernel_of(True, "mma"), True, chunks)
    for row in range(TOKENS):
        tokens = numpy.arange(row + 1)
        near = tokens[(tokens < SINK) | (tokens > row - RECENT)]
        for head, seen in enumerate((tokens, near)):
            mine = slice(2 * head, 2 * head + 2)
            o, of_row = oracle.attend(Q[row, mine], K[seen, head : head + 1], V[seen, head : head + 1])
            assert oracle.error(out[row, mine], o) < 2e-3
            assert abs(lse[row, mine] - of_row).max() < 2e-3


@pytest.mark.parametrize("classes", ([0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 1]))
def test_a_class_may_have_no_heads(classes):
    """Layers differ in how many heads stream: all in one, none in another. Tensor maps count heads too, and one of them
    is then empty."""
    torch = pytest.importorskip("torch")
    sizes = {"q_heads": 8, "kv_heads": 4, "head_dim": DIM, "dtype": "float16"}
    kernel = attn.compile(
        attn.Spec(
            **sizes,
            see=attn.causal(),
            heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(SINK) | attn.recent(RECENT)),
            kv=[
                attn.Paged(name="all", head_class="retrieval"),
                attn.Paged(name="few", head_class="streaming"),
            ],
        ),
        device="host",
        schedule="wgmma",
    )
    of_class = [
        CacheClass(name="retrieval", pages=30, heads=classes.count(0)),
        CacheClass(name="streaming", pages=30, heads=classes.count(1), recent=RECENT, sink=SINK),
    ]
    cache = PagedCache(layers=1, kv_heads=4, head_dim=DIM, dtype="float16", device="host", classes=of_class)
    random, node, kept = torch.Generator().manual_seed(0), cache.add(), []
    for count in (200, 100, 60):
        change = cache.append([node], [count])
        k, v = torch.randn(2, count, 4, DIM, generator=random).half()
        kept.append((k, v))
        change.write(0, k, v, classes=classes)
        plan = kernel.plan(cache.batch([(node, count)], classes=classes))
        q = torch.randn(count, 8, DIM, generator=random).half()
        out = kernel.run(q, cache.layer(0), plan)
        keys, values = (torch.cat(part).numpy() for part in zip(*kept, strict=True))
        for row in (0, count - 1):
            tokens = numpy.arange(len(keys) - count + row + 1)
            near = tokens[(tokens < SINK) | (tokens > tokens[-1] - RECENT)]
            for head, of_head in enumerate(classes):
                seen, mine = (tokens, near)[of_head], slice(2 * head, 2 * head + 2)
                expected, _ = oracle.attend(
                    q[row, mine].numpy(), keys[seen, head : head + 1], values[seen, head : head + 1]
                )
                assert oracle.error(out[row, mine].numpy(), expected) < 2e-3
