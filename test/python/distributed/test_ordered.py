# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.distributed.attend(ordered=True): one SHA-256 of results and gradients for any number of ranks."""

import hashlib

import attn
import pytest
import torch
from attn import distributed
from attn.distributed import forms, groups, sequences, steps
from rank_cases import NAMES, Case
from ranks import FULL, run_ranks

STREAMING = attn.causal() & (attn.sink(4) | attn.recent(100))
CASES = [
    Case(lengths=(390, 1, 60), see=STREAMING, heads=(2, 1), sinks=True, ordered=True),
    # The rows of the root would choose another kernel on two ranks than on one.
    Case(lengths=(390, 300, 100), parents=(-1, 0, 0), heads=(2, 1), ordered=True),
]
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


BY_ROW = [
    Case(lengths=(2500, 1, 260), heads=(2, 1), numerics="row"),  # Parts end after 2,048 tokens.
    Case(lengths=(390, 300, 100), parents=(-1, 0, 0), heads=(2, 1), numerics="row", ordered=True),
    Case(lengths=(200,), batch=2, see=attn.window(90, 30), dtype=torch.float16, numerics="row"),
    Case(lengths=(300, 40), see=STREAMING, form="heads", heads=(8, 4), dims=(128, 128), numerics="row"),
]


def results_of(rank, cases):
    return [case.of_ranks(2) for case in cases]


def test_rows_have_the_bits_of_one_gpu(tmp_path):
    for found in run_ranks(2, results_of, BY_ROW, timeout=600, group_timeout=300, tmp_path=tmp_path):
        for case, got in zip(BY_ROW, found, strict=True):
            for name, a, b in zip(NAMES, got, case.of_row(), strict=False):
                assert torch.equal(a, b), (name, case)
            case.check(got)


NOT_BY_ROW = [
    (dict(form="ring"), "form: expected 'all_gather' or 'heads' beside numerics='row'"),
    (dict(sink_logits=torch.zeros(2)), "sink_logits: expected none beside numerics='row'"),
    (dict(numerics="rows"), "numerics: expected 'row'"),
]


def refuse_by_row(rank):
    q, k, v = (torch.randn(40, 2, 64).bfloat16() for _ in range(3))
    options = dict(split=distributed.split([0, 40], 1), cu_seqlens=[0, 40], causal=True, numerics="row")
    found = []
    for changes, _ in NOT_BY_ROW:
        with pytest.raises(attn.SpecError) as error:
            distributed.attend(q, k, v, **options | changes)
        found.append(str(error.value))
    return found


def test_what_has_no_bits_of_one_gpu(tmp_path):
    (found,) = run_ranks(1, refuse_by_row, tmp_path=tmp_path)
    for text, (_, said) in zip(found, NOT_BY_ROW, strict=True):
        assert text.startswith(said)


def test_no_task_of_rows_is_cut():
    """A batch whose tasks are fewer than blocks, which plans cut otherwise."""
    spec = attn.Spec(
        q_heads=1, kv_heads=1, head_dim=64, dtype="bfloat16", kv=[attn.Packed()], see=attn.causal()
    )
    kernels = steps.Kernels(spec, "host", True)
    whole, everything = sequences.sequences_of(16384), [(0, 16384)]
    tensors = {
        name: torch.empty(16384, 1, 64, dtype=torch.bfloat16, device="meta") for name in ("q", "kv.k", "kv.v")
    }
    cuts = {}
    for whole_tasks in (False, True):
        step = steps.Step(kernels, whole, everything, everything, whole_tasks=whole_tasks)
        plan = step._plan(kernels.forward, tensors, step.tables, strategy=step._strategy)
        cuts[whole_tasks] = plan.stats["cuts"]
    assert cuts[False] > 0 and cuts[True] == 0


def test_blocks_of_keys_are_those_of_the_whole_batch(monkeypatch):
    """Gradients of keys are summed by instances, which ranks of any number have in common."""
    made = []

    class Recorded(steps.Step):
        def __init__(self, _, whole, rows, keys, *, cut=0, whole_tasks=False):
            tables = whole.tables(rows, keys, cut)
            if not whole_tasks:
                tokens = sequences.expanded(keys)
                made.extend(
                    (int(tokens[start]), length)
                    for start, length in zip(tables["kv.start"], tables["kv.lengths"].tolist(), strict=False)
                )

    monkeypatch.setattr(forms, "Step", Recorded)
    starts, found = [0, 1000, 1001, 5000], {}
    for ranks in (1, 2, 5):
        made.clear()
        split = distributed.split(starts, ranks, see=attn.causal(), ordered=True)
        for rank in range(ranks):
            group = groups.Group(None, rank, ranks)
            forms.Ordered(
                None,
                sequences.sequences_of(starts),
                list(split.parts),
                group,
                torch.device("cpu"),
                split.block,
            )
        found[ranks] = sorted(made)
    assert found[1] == found[2] == found[5] and len(found[1]) == 3 + 1 + 11


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
