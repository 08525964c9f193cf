# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that exchange states in memory that all can write, against float64 and against a collective."""

import itertools
import os
import random
import time

import attn
import pytest
import torch
from attn import distributed
from attn.distributed.state_kernels import merge_kernel
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
