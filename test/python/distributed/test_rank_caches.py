# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding over caches whose tokens, or heads, ranks share, against one cache in one process."""

import attn
import pytest
import torch
from attn import distributed
from ranks import FULL, run_ranks

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 64, 16
COUNTS = [[100, 7, 45], [1, 1, 1], [2, 0, 1]]
ROWS = [[5, 7, 1], [1, 1, 1], [2, 1, 1]]


def described(see, formats, heads=HEADS, kv_heads=KV_HEADS):
    return attn.compile(
        attn.Spec(
            q_heads=heads,
            kv_heads=kv_heads,
            head_dim=DIM,
            dtype="bfloat16",
            kv=[attn.Paged(page_size=PAGE, **formats)],
            see=see,
        ),
        device="host",
    )


def tensors(step, layers, scale):
    generator = torch.Generator().manual_seed(step)
    k, v = torch.randn(2, layers, sum(COUNTS[step]), KV_HEADS, DIM, generator=generator).bfloat16()
    return k, v, (torch.randn(sum(ROWS[step]), HEADS, DIM, generator=generator) * scale).bfloat16()


def decode(cache, make_plan, run, kernel):
    """Append, plan and run three steps of two layers; returns outputs and LSEs."""
    found, plan = [], None
    sequences = [cache.add() for _ in COUNTS[0]]
    for step, (counts, rows) in enumerate(zip(COUNTS, ROWS, strict=True)):
        growing = [s for s, count in zip(sequences, counts, strict=True) if count]
        change = cache.append(growing, [count for count in counts if count])
        plan = make_plan(kernel, list(zip(sequences, rows, strict=True)), plan)
        k, v, q = tensors(step, 2, 2.0)
        for layer in range(2):
            change.write(layer, k[layer], v[layer])
            found.append(run(plan, q, layer))
    return found


def on_ranks(rank, see, formats, chunk):
    """Decode over a cache whose tokens ranks share."""
    cache = distributed.ShardedCache(
        layers=2,
        pages=30,
        page_size=PAGE,
        chunk=chunk,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        device="host",
        **formats,
    )

    def make_plan(kernel, requests, plan):
        if plan is None:
            return cache.plan(kernel, requests)
        plan.update(requests)
        return plan

    return decode(
        cache, make_plan, lambda plan, q, layer: plan.run(q, layer, return_lse=True), described(see, formats)
    )


def on_one(see, formats):
    """Decode the same tokens over a cache of one process."""
    cache = attn.PagedCache(
        layers=2, pages=30, page_size=PAGE, kv_heads=KV_HEADS, head_dim=DIM, device="host", **formats
    )
    kernel = described(see, formats)

    def run(plan, q, layer):
        return kernel.run(q, cache.layer(layer), plan, return_lse=True)

    return decode(cache, lambda kernel, requests, _: kernel.plan(cache.batch(requests)), run, kernel)


STREAMING = attn.sink(4) | attn.window(40)
CASES = [(2, STREAMING, {"key": "int8", "value": "int4"}, 32)]
MORE = [
    (ranks, see, formats, chunk)
    for ranks in (2, 4)
    for see in (attn.causal(), STREAMING)
    for formats in ({}, {"key": "fp8_e4m3", "value": "fp8_e4m3"}, {"key": "mxfp8", "value": "mxfp4"})
    for chunk in (16, 64)
]


@pytest.mark.parametrize(("ranks", "see", "formats", "chunk"), CASES + (MORE if FULL else []))
def test_ranks_decode_as_one_process(ranks, see, formats, chunk, tmp_path):
    found = run_ranks(ranks, on_ranks, see, formats, chunk, timeout=300, tmp_path=tmp_path)
    want = on_one(see, formats)
    for of_rank in found:
        for (out, lse), (wanted, wanted_lse), (first, _) in zip(of_rank, want, found[0], strict=True):
            assert torch.equal(out, first)  # All ranks have the same bits.
            out, wanted = out.float(), wanted.float()
            errors = (out - wanted).norm(dim=-1) / wanted.norm(dim=-1)
            assert errors.max() < 8e-3 and (lse - wanted_lse).abs().max() < 2e-3


LATENT, LINE = 64, 96


def decode_latents(cache, kernel, run):
    """Decode three sequences over lines of latents, whose values are a part of their keys; returns out and lse."""
    generator = torch.Generator().manual_seed(5)
    sequences = [cache.add() for _ in range(3)]
    lines = torch.randn(150, 1, LINE, generator=generator).bfloat16()
    cache.append(sequences, [90, 50, 10]).write(0, lines)
    q = torch.randn(3, HEADS, LINE, generator=generator).bfloat16()
    return run(kernel, sequences, q)


def latents(rank):
    kernel = attn.compile(latent_spec(), device="host")
    sizes = dict(layers=1, page_size=PAGE, kv_heads=1, head_dim=LINE, value=attn.first(LATENT), device="host")
    cache = distributed.ShardedCache(pages=16, chunk=32, **sizes)
    found = decode_latents(cache, kernel, lambda k, s, q: cache.plan(k, s).run(q, 0, return_lse=True))
    if rank:
        return found
    one = attn.PagedCache(pages=16, **sizes)
    run = lambda k, s, q: k.run(q, one.layer(0), k.plan(one.batch(s)), return_lse=True)  # noqa: E731
    return found, decode_latents(one, kernel, run)


def latent_spec():
    store = attn.Paged(page_size=PAGE, value=attn.first(LATENT))
    return attn.Spec(
        q_heads=HEADS, kv_heads=1, head_dim=LINE, dtype="bfloat16", kv=[store], see=attn.causal()
    )


def test_ranks_share_latents(tmp_path):
    (first, (wanted, wanted_lse)), second = run_ranks(2, latents, tmp_path=tmp_path)
    assert torch.equal(first[0], second[0]) and first[0].shape == (3, HEADS, LATENT)
    errors = (first[0].float() - wanted.float()).norm(dim=-1) / wanted.float().norm(dim=-1)
    assert errors.max() < 8e-3 and (first[1] - wanted_lse).abs().max() < 2e-3


def failures(rank):
    """Append tokens that are not written, in between others; returns what steps give, and the errors."""
    kernel = described(attn.causal(), {})
    options = dict(layers=1, page_size=PAGE, kv_heads=KV_HEADS, head_dim=DIM, device="host")
    cache = distributed.ShardedCache(pages=12, chunk=32, **options)
    one = attn.PagedCache(pages=24, **options)
    generator = torch.Generator().manual_seed(3)
    k, v = torch.randn(2, 150, KV_HEADS, DIM, generator=generator).bfloat16()
    q = torch.randn(1, HEADS, DIM, generator=generator).bfloat16()
    a, b, same = cache.add(), cache.add(), one.add()
    errors, found = [], []

    def refused(call):
        with pytest.raises(attn.Error) as error:
            call()
        errors.append(f"{type(error.value).__name__}: {error.value}")

    def append(begin, end):
        cache.append([a, b], [end - begin, 0]).write(0, k[begin:end], v[begin:end])
        one.append(same, end - begin).write(0, k[begin:end], v[begin:end])
        out, lse = cache.plan(kernel, [a]).run(q, 0, return_lse=True)
        wanted = kernel.run(q, one.layer(0), kernel.plan(one.batch([same])), return_lse=True)
        found.append((out, lse, *wanted, cache.tokens(a), list(cache._free), cache.cache.free_pages()))

    append(0, 10)
    failed = cache.append(a, 60)  # On both ranks.
    refused(lambda: cache.append(b, 1))
    refused(lambda: cache.prune(a))
    refused(lambda: failed.write(0, k[:60].float(), v[:60]))
    append(10, 45)
    refused(lambda: failed.write(0, k[:60], v[:60]))
    cache.append([a, b], [1, 70])  # Nothing refers to it.
    assert cache.tokens(b) == 0
    append(45, 47)
    repeated = cache.append(a, 3)
    refused(lambda: repeated.write(0, k[47:49], v[47:49]))
    repeated.write(0, k[47:50], v[47:50])
    one.append(same, 3).write(0, k[47:50], v[47:50])
    cache.append(b, 40)
    cache.rollback()
    append(50, 150)
    refused(lambda: cache.prune(a, a))
    cache.prune(a, b)
    return found, errors, list(cache._free), cache.cache.free_pages()


def test_tokens_that_were_not_written_are_taken_back(tmp_path):
    ranks = run_ranks(2, failures, tmp_path=tmp_path)
    for rank, (found, errors, free, own) in enumerate(ranks):
        assert [tokens for *_, tokens, _, _ in found] == [10, 45, 47, 150]
        for out, lse, wanted, wanted_lse, _, pages, here in found:
            assert pages[rank] == here
            errors_of = (out.float() - wanted.float()).norm(dim=-1) / wanted.float().norm(dim=-1)
            assert errors_of.max() < 8e-3 and (lse - wanted_lse).abs().max() < 2e-3
        assert (
            errors[:2]
            == [
                "PlanError: cache: 60 new tokens are not written in layers [0]: write them, or call rollback()",
            ]
            * 2
        )
        assert errors[2].startswith("TensorError: k: expected bfloat16 [60, 2, 64] on host")
        assert errors[3].startswith("PlanError: change: its 60 new tokens were taken back")
        assert errors[4].startswith("TensorError: k: expected bfloat16 [3, 2, 64] on host")
        assert errors[5].startswith("PlanError: sequences: expected different sequences")
        assert free == [12, 12] and own == 12 and len(errors) == 6


def heads_and_faults(rank):
    """Return what this rank finds of merges by heads, gathered heads, and refusals."""
    generator = torch.Generator().manual_seed(rank)
    out = torch.randn(3, HEADS, DIM, generator=generator).bfloat16()
    lse = torch.randn(3, HEADS, generator=generator)
    lse[0, 0] = -torch.inf if rank else lse[0, 0]
    lse[1], out[1] = -torch.inf, 0
    merged, own = distributed.merge(out, lse), distributed.merge(out, lse, heads="own")
    spread = [[0, 3], [1, 2]]
    mine = torch.tensor(spread[rank], dtype=torch.float32).repeat_interleave(2).expand(3, 4).contiguous()
    heads = distributed.gather_heads(mine, heads=spread)
    messages = []

    def refused(call):
        with pytest.raises(attn.Error) as error:
            call()
        messages.append(f"{type(error.value).__name__}: {error.value}")

    options = dict(layers=1, page_size=PAGE, kv_heads=KV_HEADS, head_dim=DIM, device="host")
    refused(lambda: distributed.ShardedCache(pages=4, chunk=20, **options))
    refused(lambda: distributed.ShardedCache(pages=4 + rank, chunk=32, **options))
    cache = distributed.ShardedCache(pages=4, chunk=32, **options)
    a, b = cache.add(), cache.add()
    refused(lambda: cache.append([a, b], [32, 200]))
    for k in torch.ones(2, 40, KV_HEADS, DIM, dtype=torch.bfloat16):
        cache.append(a, 40).write(0, k, k)
    refused(lambda: cache.append(a, 100))
    refused(lambda: cache.tokens(7))
    refused(lambda: distributed.merge(out, lse.double()))
    cache.prune(a)
    free = list(cache._free), cache.cache.free_pages()
    return out, lse, merged, own, heads, messages, free


def test_merges_gathered_heads_and_refusals(tmp_path):
    found = run_ranks(2, heads_and_faults, tmp_path=tmp_path)
    outs, lses = (torch.stack([each[i].double() for each in found]) for i in (0, 1))
    weights = (lses - lses.logsumexp(0)).exp().nan_to_num(0)
    want = (outs * weights.unsqueeze(-1)).sum(0)
    for rank, (_, _, merged, own, heads, messages, free) in enumerate(found):
        assert (merged[0].double() - want).abs().max() < 2e-2 and (merged[0][1] == 0).all()
        assert torch.allclose(merged[1].double(), lses.logsumexp(0), atol=1e-5)
        half = slice(2 * rank, 2 * rank + 2)
        assert torch.equal(own[0], merged[0][:, half]) and torch.equal(own[1], merged[1][:, half])
        assert heads[0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert messages == [
            "PlanError: chunk: expected a multiple of the 16 tokens of a page, got 20; nearest legal: 16",
            "GroupError: rank 1: expected pages=4 as on rank 0, got 5",
            "OutOfPages: cache: rank 0 needs 8 pages for its part of the new tokens, and has 4",
            "OutOfPages: cache: rank 0 needs 3 pages for its part of the new tokens, and has 1",
            "PlanError: sequence: expected the number of a living sequence, got 7",
            "TensorError: lse: expected float32 [3, 4], got Tensor float64 [3, 4]",
        ]
        assert free == ([4, 4], 4)
