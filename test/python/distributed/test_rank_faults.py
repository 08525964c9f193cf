# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that disagree, that die, that have no rows, and numbers that are none."""

import os
import time

import attn
import pytest
import torch
from attn import distributed
from attn.distributed import attention
from rank_cases import Case
from ranks import FULL, RankFailed, run_ranks

STARTS = [0, 40, 70]


def tensors(rank, ranks, heads=(4, 2), dim=64):
    generator = torch.Generator().manual_seed(0)
    split = distributed.split(STARTS, ranks, see=attn.causal(), block=8)
    whole = [torch.randn(70, h, dim, generator=generator).bfloat16() for h in (heads[0], heads[1], heads[1])]
    return split, [distributed.shard(each, split, rank=rank) for each in whole]


def compare_once(rank):
    """Return how often ranks compare arguments in three calls of two kinds."""
    split, own = tensors(rank, 2)
    compared, agree = [], attention.agree
    attention.agree = lambda *given: compared.append(given) or agree(*given)
    for causal in (True, True, False):
        distributed.attend(*own, split=split, cu_seqlens=STARTS, causal=causal)
    return len(compared)


def test_ranks_compare_arguments_once_for_each_kind_of_call(tmp_path):
    assert run_ranks(2, compare_once, tmp_path=tmp_path) == [2, 2]


def disagree(rank):
    """Return what every rank is told about calls in which rank 1 is wrong."""
    split, (q, k, v) = tensors(rank, 2)
    _, other = tensors(rank, 2, dim=128)
    wrong = rank == 1
    calls = [
        lambda: distributed.attend(q[:-3] if wrong else q, k, v, split=split, cu_seqlens=STARTS, causal=True),
        lambda: distributed.attend(
            *(other if wrong else (q, k, v)), split=split, cu_seqlens=STARTS, causal=True
        ),
        lambda: distributed.attend(q, k, v, split=split, cu_seqlens=STARTS, window_size=(3 + wrong, 0)),
        lambda: distributed.attend(q, k, v, split=split, cu_seqlens=[0, 40 + wrong, 70]),
        lambda: distributed.attend(
            q, k, v, split=split, cu_seqlens=STARTS, form="ring" if wrong else "heads"
        ),
        lambda: distributed.attend(q, k, v, split=split, cu_seqlens=STARTS, form="rings"),
        lambda: distributed.attend(q.float() if wrong else q, k, v, split=split, cu_seqlens=STARTS),
    ]
    found = []
    for call in calls:
        with pytest.raises(attn.GroupError) as error:
            call()
        found.append(str(error.value))
    assert distributed.attend(q, k, v, split=split, cu_seqlens=STARTS).isfinite().all()  # Ranks still agree.
    return found


def test_every_rank_is_told_which_rank_is_wrong(tmp_path):
    first, second = run_ranks(2, disagree, tmp_path=tmp_path)
    assert first == second
    starts = (
        "rank 1: k: expected [",
        "rank 1: expected dims=(64, 64) as on rank 0, got (128, 128)",
        "rank 1: expected problem=",
        "rank 1: expected cu_seqlens=[0, 40, 70] as on rank 0, got [0, 41, 70]",
        "rank 1: expected form='heads' as on rank 0, got 'ring'",
        "rank 0: form: expected all_gather or ring or heads, got 'rings'; nearest legal: 'ring'",
        "rank 1: q: expected bfloat16 or float16, got torch.float32; nearest legal: q.bfloat16()",
    )
    for message, start in zip(first, starts, strict=True):
        assert message.startswith(start), message


def die(rank, form):
    """Rank 1 of three ends in the middle of a series of calls. Others raise what they were told."""
    split, (q, k, v) = tensors(rank, 3, heads=(3, 3))
    options = dict(form=form, split=split, cu_seqlens=STARTS, causal=True)
    distributed.attend(q, k, v, **options)
    if rank == 1:
        os._exit(3)
    begin = time.monotonic()
    with pytest.raises(attn.GroupError) as error:
        for _ in range(3):
            distributed.attend(q, k, v, **options)
    assert time.monotonic() - begin < 50
    raise Reported(str(error.value))


@pytest.mark.parametrize("form", ["ring", *(["all_gather", "heads"] if FULL else [])])
def test_a_rank_that_dies_is_named(form, tmp_path):
    with pytest.raises(RankFailed) as failed:
        run_ranks(3, die, form, group_timeout=60.0, tmp_path=tmp_path)
    errors = failed.value.errors
    assert errors[1] is None
    for rank in (0, 2):
        said = errors[rank].partition(" failed: ranks could not")
        assert said[0].startswith("Reported: ") and "rank 1" in said[0] and f"rank {rank}" not in said[0], (
            errors[rank]
        )


class Reported(Exception):
    """Carries what a rank was told past the end of its group."""


def few_rows(rank):
    """Attend to two rows on three ranks, and to none on any but one."""
    found = []
    for form in ("ring", "heads"):
        case = Case(form, lengths=(2,), heads=(6, 3), block=1, method="contiguous")
        found.append((case, case.of_ranks(3)))
    return found


def test_a_mesh_may_be_larger_than_the_sequence(tmp_path):
    for case, results in run_ranks(3, few_rows, tmp_path=tmp_path)[0]:
        case.check(results)


def not_numbers(rank, form):
    """Return rows and gradients that are not finite, where a value of the first document is NaN on one rank."""
    split, own = tensors(rank, 2)
    starts = torch.tensor(split.rows(rank))
    own[2][starts == 11] = torch.nan
    own = [each.requires_grad_() for each in own]
    out = distributed.attend(*own, form=form, split=split, cu_seqlens=STARTS, causal=True)
    out.float().nan_to_num().sum().backward()
    found = [out, *(each.grad for each in own)]
    return [~distributed.unshard(each, split).isfinite().flatten(1).all(1) for each in found]


def test_a_nan_on_one_rank_reaches_the_rows_that_see_it(tmp_path):
    for form in ("ring", *(["all_gather"] if FULL else [])):
        for out, d_q, d_k, d_v in run_ranks(2, not_numbers, form, tmp_path=tmp_path):
            assert out[11:40].all(), "rows from the token on, on both ranks"
            assert not out[40:].any(), "the other document"
            assert d_q[11:40].all() and d_k[:40].any()
            assert not d_q[40:].any() and not d_k[40:].any() and not d_v[40:].any()
