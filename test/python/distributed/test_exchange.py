# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that exchange states in memory that all can write, against float64 and against a collective."""

import functools
import itertools
import os
import random
import socket
import time
import types

import attn
import pytest
import torch
from attn import distributed
from attn.compiler.requests import request_for
from attn.distributed import peers, state_kernels
from attn.distributed.exchange import region_words
from attn.distributed.state_kernels import merge_kernel
from attn.memory import devices
from ranks import FULL, run_ranks

SHAPES = [
    (3, 4, 64, torch.bfloat16),
    (1, 1, 128, torch.float16),
    (5, 7, 40, torch.bfloat16),
    (2, 3, 512, torch.float16),
]


def states(seed, ranks, rows, heads, dim, dtype, *, empty=()):
    """Return outputs and LSEs of all ranks; `empty` ranks have no tokens, and no rank has any for the last row."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.randn(ranks, rows, heads, dim, generator=generator).to(dtype)
    lse = 8 * torch.randn(ranks, rows, heads, generator=generator)
    none = torch.zeros(ranks, rows, dtype=torch.bool)
    none[list(empty)] = True
    none[:, -1] = rows > 1
    out[none], lse[none] = 0, -torch.inf
    return out, lse


def fill(partial, out, lse):
    partial.out.copy_(out)
    partial.lse.copy_(lse)


def exchange(rank, ranks, device="cpu"):
    """Merge states of every shape both ways; returns the results."""
    found = []
    for number, (rows, heads, dim, dtype) in enumerate(SHAPES):
        out, lse = (each.to(device) for each in states(number, ranks, rows, heads, dim, dtype, empty=[1]))
        shared = distributed.Partial.shared(rows, heads, dim, out)
        assert not shared.why_gathered, shared.why_gathered
        gathered = distributed.Partial(rows, heads, dim, out)
        assert gathered.why_gathered
        for partial in (shared, gathered):
            fill(partial, out[rank], lse[rank])
            for _ in range(3):
                results = partial.merged()
            found.append([each.cpu() for each in results])
        shared.check()
    return found


def reference(out, lse):
    """Merge in float64."""
    lse = lse.double()
    total = lse.logsumexp(0)
    weights = torch.where(lse == -torch.inf, 0, (lse - total).exp()).unsqueeze(-1)
    return (out.double() * weights).sum(0), total


def check_results(found, ranks):
    for (rows, heads, dim, dtype), number in zip(SHAPES, itertools.count(), strict=False):
        out, lse = states(number, ranks, rows, heads, dim, dtype, empty=[1])
        wanted, total = reference(out, lse)
        tolerance = 2**-8 if dtype == torch.bfloat16 else 2**-10
        for of_rank in found:
            (exchanged, exchanged_lse), (gathered, gathered_lse) = of_rank[2 * number : 2 * number + 2]
            assert torch.equal(exchanged.view(torch.int16), gathered.view(torch.int16))
            assert torch.equal(exchanged_lse.view(torch.int32), gathered_lse.view(torch.int32))
            assert torch.equal(exchanged.view(torch.int16), found[0][2 * number][0].view(torch.int16))
            assert (exchanged.double() - wanted).abs().max() <= tolerance * wanted.abs().max()
            seen = total > -torch.inf
            assert torch.equal(exchanged_lse == -torch.inf, ~seen)
            assert (exchanged_lse.double() - total)[seen].abs().max() < 1e-5


@pytest.mark.parametrize("ranks", [2, 4])
def test_states_are_those_of_float64_and_of_a_collective(ranks, tmp_path):
    check_results(run_ranks(ranks, exchange, ranks, tmp_path=tmp_path), ranks)


def many_steps(rank, ranks, steps):
    """Exchange in many steps, at random moments; returns the number of wrong ones."""
    rows, heads, dim, dtype = 2, 3, 64, torch.bfloat16
    generator, wrong = random.Random(rank), 0
    out, lse = states(0, ranks, rows, heads, dim, dtype)
    partial = distributed.Partial.shared(rows, heads, dim, out)
    assert not partial.why_gathered
    merge = merge_kernel(ranks, rows * heads, dim, dtype, "host")
    slots = [distributed.Partial(rows, heads, dim, out) for _ in range(ranks)]
    for step in range(steps):
        out, lse = states(step, ranks, rows, heads, dim, dtype, empty=[step // 2 % ranks] if step % 2 else [])
        fill(partial, out[rank], lse[rank])
        for slot, *state in zip(slots, out, lse, strict=True):
            fill(slot, *state)
        if generator.random() < 0.05:
            time.sleep(generator.random() * 0.004)
        found = partial.merged()
        wanted = torch.empty_like(found[0]), torch.empty_like(found[1])
        merge.launch(*wanted, torch.cat([slot._memory for slot in slots]))
        wrong += not all(
            torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(found, wanted, strict=True)
        )
    return wrong


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_thousand_steps_at_random_moments(ranks, tmp_path):
    steps = 1000 if FULL or ranks == 2 else 200
    assert run_ranks(ranks, many_steps, ranks, steps, tmp_path=tmp_path) == [0] * ranks


def lose_a_rank(rank, device="cpu"):
    """Rank 1 of three ends before its third step; returns what others are told, and when."""
    out, lse = (each.to(device) for each in states(0, 3, 2, 4, 64, torch.bfloat16))
    partial = distributed.Partial.shared(2, 4, 64, out, timeout=1.0)
    fill(partial, out[rank], lse[rank])
    for _ in range(2):
        partial.merged()
    if rank == 1:
        os._exit(3)
    begin = time.monotonic()
    with pytest.raises(attn.GroupError) as error:
        partial.merged()
    seconds = time.monotonic() - begin
    with pytest.raises(attn.GroupError):
        partial.merged()
    text = str(error.value)
    torch.distributed.destroy_process_group()
    return text, seconds, time.monotonic() - begin


def test_a_rank_that_dies_is_named(tmp_path):
    first, second, third = run_ranks(3, lose_a_rank, tmp_path=tmp_path)
    assert second is None
    for text, seconds, both in (first, third):
        assert text.startswith("rank 1 failed: no answer within 1 s")
        assert 0.9 < seconds < 20 and both < seconds + 1


def results_of_a_late_rank(rank):
    """Rank 1 comes too late; returns the results of rank 0 and what it is told."""
    out, lse = states(0, 2, 2, 4, 64, torch.bfloat16)
    partial = distributed.Partial.shared(2, 4, 64, out, timeout=0.05)
    fill(partial, out[rank], lse[rank])
    if rank == 1:
        return None
    exchange, results = partial._exchange, [torch.zeros(2, 4, 64).bfloat16(), torch.zeros(2, 4)]
    with pytest.raises(attn.GroupError):
        exchange.run(exchange._group, *results, partial.out, partial.lse)
    return [each.isnan().all().item() for each in results]


def test_results_without_a_rank_are_nan(tmp_path):
    assert run_ranks(2, results_of_a_late_rank, tmp_path=tmp_path)[0] == [True, True]


def disagree(rank):
    out, _ = states(0, 2, 2, 4, 64, torch.bfloat16)
    found = []
    for call in (
        lambda: distributed.Partial.shared(2 + rank, 4, 64, out),
        lambda: distributed.Partial.shared(2, 4, 64, out, timeout=0),
        lambda: distributed.Partial.shared(2, 4, 64, out).merged(torch.distributed.new_group([0, 1])),
    ):
        with pytest.raises(attn.Error) as error:
            call()
        found.append((type(error.value).__name__, str(error.value)))
    assert distributed.Partial.shared(0, 4, 64, out).why_gathered
    assert distributed.Partial.shared(2, 4, 12, out).why_gathered
    return found


def test_wrong_arguments_are_refused(tmp_path):
    first, second = run_ranks(2, disagree, tmp_path=tmp_path)
    assert first == second
    (kind, rows), (other, timeout), (last, group) = first
    assert kind == "GroupError" and rows == "rank 1: expected rows=2 as on rank 0, got 3"
    assert other == "TensorError" and timeout.startswith("timeout: expected 0.001 to 2000000 seconds, got 0")
    assert last == "GroupError" and group.startswith(
        "group: expected the group that Partial.shared was given"
    )


def checked_request(make, text, **options):
    return make(text, **options | {"checked": True})


@pytest.mark.parametrize("seed", range(3))
def test_the_detectors_find_nothing(seed, monkeypatch):
    """Rank 1 of two has written and signalled already, as another process would."""
    place = devices.checked_host(seed=seed, shuffle=True)
    monkeypatch.setattr(state_kernels, "get_device", lambda name: place)
    monkeypatch.setattr(state_kernels, "request_for", functools.partial(checked_request, request_for))
    rows, heads, dim, dtype = 3, 3, 72, torch.bfloat16
    out, lse = states(seed, 2, rows, heads, dim, dtype)
    items = rows * heads
    slot, region = state_kernels.slot_words(items, dim), region_words(2, items, dim)
    lines = [distributed.Partial(rows, heads, dim, out) for _ in range(2)]
    for line, *state in zip(lines, out, lse, strict=True):
        fill(line, *state)
    memory = torch.zeros(2, region, dtype=torch.int32)
    places = torch.tensor([0, region]).view(torch.int32).view(2, 2)
    state, status = (
        torch.zeros(state_kernels.STATE_WORDS, dtype=torch.int32),
        torch.zeros(2, dtype=torch.int32),
    )
    state[2] = 10_000
    begin = 2 * state_kernels.SIGNALS + slot * 2 + slot  # The second set, and rank 1's slot in it.
    memory[0, begin : begin + slot] = lines[1]._memory.view(torch.int32)[0]
    memory[0, state_kernels.SIGNALS : state_kernels.SIGNALS + 16] = 1
    results = torch.empty(rows, heads, dim, dtype=dtype), torch.empty(rows, heads)
    kernel = state_kernels.exchange_kernel(2, items, dim, dtype, "host", (2, region))
    kernel.launch(*results, lines[0].out, lines[0].lse, memory, places, state, status)
    assert not status.any() and state[0] == 0 and state[4 : 4 + 4].tolist() == [1] * 4
    mirrored = memory[1, begin - slot : begin]
    written = items * (dim // 2) + items
    assert torch.equal(mirrored[:written], lines[0]._memory.view(torch.int32)[0][:written])
    merged = torch.empty_like(results[0]), torch.empty_like(results[1])
    merge = state_kernels.merge_kernel.__wrapped__(2, items, dim, dtype, "host")
    merge.launch(*merged, torch.cat([line._memory for line in lines]))
    for found, wanted in zip(results, merged, strict=True):
        assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))
    report = place.report()
    assert report["clean"], report["text"]
    places[1, 0] *= 4  # They find a region that is not there.
    memory[0, state_kernels.SIGNALS : state_kernels.SIGNALS + 16] = 2
    kernel.launch(*results, lines[0].out, lines[0].lse, memory, places, state, status)
    assert place.report()["out_of_bounds"] > 0


def elsewhere(rank):
    """Merge where memory cannot be shared; returns why, and whether the results are those of a shared one."""
    out, lse = states(0, 2, 2, 4, 64, torch.bfloat16)
    partials = [distributed.Partial.shared(2, 4, 64, out)]
    peers.socket = types.SimpleNamespace(gethostname=lambda: f"host-{rank}")
    partials.append(distributed.Partial.shared(2, 4, 64, out))
    peers.socket, peers._SHARED_FOLDER = socket, "/nowhere"
    partials.append(distributed.Partial.shared(2, 4, 64, out))
    for partial in partials:
        fill(partial, out[rank], lse[rank])
    results = [partial.merged()[0] for partial in partials]
    return [partial.why_gathered for partial in partials], [torch.equal(results[0], each) for each in results]


def test_ranks_that_share_no_memory_gather(tmp_path):
    for why, equal in run_ranks(2, elsewhere, tmp_path=tmp_path):
        assert why[:2] == ["", "rank 1 has another host or kind of GPU than rank 0"]
        assert why[2].startswith("rank 0: FileNotFoundError: ") and all(equal)


def step_of_a_cache(rank, tokens):
    """Run a step over a sharded cache both ways; returns whether the bits are equal, and finite."""
    heads, kv_heads, dim = 4, 2, 64
    cache = distributed.ShardedCache(
        layers=1, pages=20, page_size=16, chunk=32, kv_heads=kv_heads, head_dim=dim, device="host"
    )
    generator = torch.Generator().manual_seed(0)
    numbers = [cache.add() for _ in tokens]
    k, v = torch.randn(2, sum(tokens), kv_heads, dim, generator=generator).bfloat16()
    cache.append(numbers, tokens).write(0, k, v)
    spec = attn.Spec(
        q_heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        dtype="bfloat16",
        kv=[attn.Paged(page_size=16)],
        see=attn.causal(),
    )
    plan = cache.plan(attn.compile(spec, device="host"), numbers)
    q = torch.randn(len(tokens), heads, dim, generator=generator).bfloat16()
    shared = distributed.Partial.shared(len(tokens), heads, dim, q)
    found = [plan.run(q, 0, return_lse=True, partial=partial) for partial in (shared, None, shared)]
    return all(map(torch.equal, *found[:2])) and all(map(torch.equal, *found[1:])), found[0][
        0
    ].isfinite().all()


@pytest.mark.parametrize("tokens", [[100, 40], [20]], ids=["all", "one rank has tokens"])
def test_a_step_over_a_sharded_cache(tokens, tmp_path):
    assert run_ranks(2, step_of_a_cache, tokens, tmp_path=tmp_path) == [(True, True)] * 2


def test_states_that_no_kernel_counts_are_merged_otherwise():
    """Kernels count words in 31 bits: those of half a million rows of 64 heads on four ranks are more."""
    from attn.distributed.state_kernels import serves

    rows = 1 << 17
    assert serves(4, rows * 32, 128) and not serves(4, rows * 64, 128)
    assert not serves(4, 0, 128) and not serves(1, 32, 128) and not serves(2, 32, 12)
