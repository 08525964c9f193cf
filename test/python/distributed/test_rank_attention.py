# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.distributed.attend over gloo ranks on the host device, against one process in float64."""

import random

import attn
import pytest
import torch
from attn import distributed
from rank_cases import Case, compute
from ranks import FULL, run_ranks

CAUSAL, ALL = attn.causal(), attn.all_tokens()
STREAMING = attn.causal() & (attn.sink(3) | attn.recent(21))
DOCUMENTS = (70, 1, 0, 90, 35)
TREE = {"lengths": (40, 25, 10, 30, 45), "parents": (-1, 0, 1, 0, -1)}

TWO = [
    Case(),
    Case("ring", DOCUMENTS, see=STREAMING, sinks=True),
    Case("heads", DOCUMENTS, see=CAUSAL, heads=(6, 2), softcap=20.0),
    Case("all_gather", (75,), batch=2, see=ALL, dims=(96, 64), dtype=torch.float16, method="zigzag"),
    Case("ring", **TREE),
]
FOUR = [
    Case("ring", (130,), see=CAUSAL, heads=(3, 1), method="contiguous"),
    Case("ring", DOCUMENTS, see=attn.window(9, 5), mesh=(2, 2), heads=(4, 1), sinks=True),
    Case("all_gather", see=STREAMING, **TREE),
    Case("heads", (61,), batch=2, see=CAUSAL, heads=(8, 2)),
]


@pytest.mark.parametrize(("ranks", "cases"), [(2, TWO), (4, FOUR)], ids=["2", "4"])
def test_results_and_gradients_are_those_of_one_process(ranks, cases, tmp_path):
    found = run_ranks(ranks, compute, ranks, cases, tmp_path=tmp_path)[-1]
    for case, results in zip(cases, found, strict=True):
        case.check(results)


FUSED = [
    Case("ring", (1300,), heads=(2, 1), dims=(128, 128), block=128),
    Case("all_gather", (700, 500, 300), parents=(-1, 0, 0), heads=(2, 1), block=64),
    Case("ring", (1100,), see=ALL, heads=(2, 1), dims=(128, 128), block=128),
]


@pytest.mark.skipif(not FULL, reason="a thousand tokens on the host device: part of --full")
def test_fused_gradients_of_parts(tmp_path):
    """Rows that see 500 tokens or more have gradients of one launch, which take the LSE over all ranks, too."""
    found = run_ranks(2, compute, 2, FUSED, timeout=600, tmp_path=tmp_path)[-1]
    for case, results in zip(FUSED, found, strict=True):
        case.check(results)


def random_case(seed):
    """Draw a case."""
    draw = random.Random(seed)
    kv_heads = draw.choice([1, 2, 4])
    see = draw.choice(
        [
            CAUSAL,
            ALL,
            STREAMING,
            attn.window(30),
            attn.window(11, 7),
            attn.chunk(40) & CAUSAL,
            attn.sink(5) | attn.window(17),
        ]
    )
    lengths = tuple(draw.choice([0, 1, 7, 40, 64, 111]) for _ in range(draw.randint(1, 5)))
    lengths = lengths if sum(lengths) > 30 else (33,)
    kind = draw.choice(["packed", "dense", "forest"])
    form = draw.choice(["all_gather", "ring", "heads"])
    mesh = draw.choice([None, (2, 2)]) if form != "heads" else None
    more = {}
    if kind == "dense":
        lengths, more = (max(*lengths, 31),), {"batch": draw.randint(1, 3)}
    if kind == "forest":
        parents = [-1]
        for node in range(1, len(lengths)):
            path = [node - 1]
            while parents[path[-1]] >= 0:
                path.append(parents[path[-1]])
            parents.append(draw.choice([*path, -1]))
        more = {"parents": tuple(parents)}
    return Case(
        form=form,
        lengths=lengths,
        see=see,
        heads=(4 * draw.choice([1, 2, 3]) if kv_heads < 4 else 8, kv_heads),
        dims=draw.choice([(64, 64), (128, 128), (96, 64), (40, 40)]),
        dtype=draw.choice([torch.bfloat16, torch.float16]),
        sinks=draw.random() < 0.3,
        softcap=draw.choice([None, None, 15.0]),
        method=draw.choice(["balanced", "zigzag", "contiguous"]),
        block=draw.choice([1, 16, 50, 128]),
        mesh=mesh,
        scale=draw.choice([1.0, 0.1, 3.0]),
        seed=seed,
        **more,
    )


@pytest.mark.skipif(not FULL, reason="60 random cases on 2 and 4 ranks: part of --full")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_cases(ranks, first, tmp_path):
    cases = [random_case(1000 * ranks + first + i) for i in range(10)]
    cases = [case for case in cases if ranks == 4 or case.mesh is None]
    found = run_ranks(ranks, compute, ranks, cases, timeout=600, tmp_path=tmp_path)[-1]
    for case, results in zip(cases, found, strict=True):
        case.check(results)


def test_the_transfer_of_the_next_part_is_issued_before_the_present_one_is_computed(monkeypatch):
    """The order of operations on one rank of three, without other processes."""
    from attn.distributed import forms, groups, sequences

    order = []

    class Recorded:
        def __init__(self, group, lines, rows):
            order.append("issue")
            self.found = lines.new_zeros(rows, lines.shape[1])

        def wait(self):
            order.append("wait")
            return self.found

    class Computed:
        pairs = 1

        def __init__(self, *given):
            pass

        def forward(self, q, k, v, into):
            order.append("compute")
            return tuple(memory.zero_() for memory in into)

    monkeypatch.setattr(forms, "Exchange", Recorded)
    monkeypatch.setattr(forms, "Step", Computed)
    whole = sequences.sequences_of(12)
    ring = forms.Ring(
        None, whole, [((0, 4),), ((4, 8),), ((8, 12),)], groups.Group(None, 0, 3), torch.device("cpu")
    )
    ring.forward(*(torch.zeros(4, 2, 8, dtype=torch.bfloat16) for _ in range(3)), None)
    assert order == ["issue", "compute", "wait", "issue", "compute", "wait", "compute"]


def test_without_processes_it_is_refused():
    tensor = torch.zeros(4, 2, 8, dtype=torch.bfloat16)
    with pytest.raises(attn.TensorError, match="group: expected processes of torch.distributed, got none"):
        distributed.attend(tensor, tensor, tensor, cu_seqlens=[0, 4])
