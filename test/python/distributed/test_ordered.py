# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.distributed.attend(ordered=True): one SHA-256 of results and gradients for any number of ranks."""

import hashlib

import attn
import pytest
import torch
from attn import distributed
from cases import NAMES, Case
from ranks import FULL, run_ranks

STREAMING = attn.causal() & (attn.sink(4) | attn.recent(100))
CASES = [Case(lengths=(390, 1, 60), see=STREAMING, heads=(2, 1), sinks=True, ordered=True)]
MORE = [
    Case(lengths=(400, 300, 500), parents=(-1, 0, 0), ordered=True),
    Case(lengths=(500, 400, 800, 400), parents=(-1, 0, 0, -1), see=attn.all_tokens(), ordered=True),
    Case(lengths=(1200,), ordered=True),
    Case(lengths=(900,), batch=2, see=attn.all_tokens(), dtype=torch.float16, heads=(3, 3), ordered=True),
    Case(lengths=(400, 1000, 7), see=attn.window(250, 30), dims=(128, 128), heads=(5, 1), ordered=True),
    Case(lengths=(2000, 3, 900), softcap=20.0, scale=3.0, ordered=True),
]


def digests(rank, cases):
    """Return the SHA-256 of each result of each case in groups of one, two and four ranks, and the results."""
    texts, results = [], []
    for members in ([0], [0, 1], [0, 1, 2, 3]):
        group = torch.distributed.new_group(members)
        if rank in members:
            results = [case.of_ranks(len(members), group) for case in cases]
            hashed = [[hashlib.sha256(as_bytes(each)).hexdigest() for each in found] for found in results]
            texts.append((len(members), hashed))
    return texts, results


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    "cases", [CASES, pytest.param(MORE, marks=pytest.mark.skipif(not FULL, reason="--full"))]
)
def test_one_two_and_four_ranks_give_the_same_bits(cases, tmp_path):
    by_rank = run_ranks(4, digests, cases, timeout=600, group_timeout=300, tmp_path=tmp_path)
    texts, results = by_rank[0]
    (_, want), *_ = texts
    for of_rank, _ in by_rank:
        for ranks, found in of_rank:
            for case, got, wanted in zip(cases, found, want, strict=True):
                differing = [name for name, a, b in zip(NAMES, got, wanted, strict=False) if a != b]
                assert not differing, (ranks, differing, case)
    for case, found in zip(cases, results, strict=True):
        case.check(found)


def refusals(rank):
    """Return the messages of calls that ask for more than ordered results can have."""
    case = Case(lengths=(400,))
    q, k, v, *_ = case.tensors()
    split = distributed.split(400, 1)
    forest = attn.Forest([0, 200, 400], [-1, 0])
    calls = [
        dict(form="ring", split=split, cu_seqlens=[0, 400]),
        dict(split=split, cu_seqlens=[0, 400]),
        dict(see=attn.window(5), forest=forest),
    ]
    found = []
    for call in calls:
        with pytest.raises(attn.Error) as error:
            distributed.attend(q, k, v, ordered=True, **call)
        found.append(str(error.value))
    return found


def test_refusals(tmp_path):
    (found,) = run_ranks(1, refusals, tmp_path=tmp_path)
    assert found == [
        "ordered: expected form='all_gather' and a group of one dimension beside it",
        "split: expected blocks of a multiple of 384 rows beside ordered=True, got none; make it with "
        "attn.distributed.split(..., ordered=True)",
        "ordered: expected causal=True or all tokens beside forest, got windows or sinks",
    ]
