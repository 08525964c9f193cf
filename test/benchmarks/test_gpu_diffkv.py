# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that serves from a fixed memory, as far as no GPU is needed: tiny ones run on the host."""

import math
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts.diffkv import (  # noqa: E402
    WAYS,
    DiffkvPoint,
    diffkv_line,
    make_cache,
    measure_diffkv,
    page_bytes,
)
from parts.diffkv_serving import Load, Shape, Tokens  # noqa: E402

SHAPE = Shape(layers=2, q_heads=4, kv_heads=2, dim=64, hidden=64, inner=64, vocabulary=128)
TINY = DiffkvPoint(
    150e3,
    shape=SHAPE,
    load=Load(rate=1e4, prompt=(20, 40), answer=(8, 16)),
    steps=8,
    warm_up=8,
    page_tokens=(4, 8),
    window=8,
    device="host",
)


@pytest.fixture
def bench():
    report.import_attn()
    return types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch))


def test_points():
    points = PARTS["diffkv"](False)
    assert len({point.key for point in points}) == len(points) == 3
    assert [point.key for point in PARTS["diffkv"](True)] == [
        "diffkv: 32 layers, 12 GB, like the paper, spread 2"
    ]
    assert Clock.work(points[0]) == points[0].seconds() and "requests" in heading(points[0])


@pytest.mark.parametrize("like", ["paper", "release"])
def test_tiny_memories(bench, like):
    point = DiffkvPoint(**{**TINY.__dict__, "like": like})
    row = measure_diffkv(point, bench)
    assert set(row["ways"]) == set(WAYS) and row["ways"]["bf16"]["batch_ratio"] == 1
    for found in row["ways"].values():
        assert found["batch"] > 0 and found["tokens_per_second"] > 0 and found["admitted"] >= found["batch"]
    sizes = [row["ways"][way]["compression"] for way in WAYS]
    assert sizes[0] == 1 and sizes[:3] == sorted(sizes[:3]) and sizes[3] > 2.5
    assert row["ways"]["DiffKV"]["batch_ratio"] >= 1.5
    shown = line(row)
    assert shown == diffkv_line(row) and "not measured" in shown and len(shown.split("\n")) == 1 + len(WAYS)
    assert [text for text, _ in bars(row, {})] == ["2.7 times smaller", "1.9 times the tokens"]


def test_pages_are_as_large_as_the_cache_says(bench):
    for way in WAYS:
        cache = make_cache(torch, TINY, way)
        assert cache.page_bytes == page_bytes(TINY, way)
        assert cache.pool.pages * cache.page_bytes <= TINY.memory


def test_attention_is_as_sparse_as_said():
    """The significance of a prompt's tokens is the weight that rows of the same keys give them."""
    tokens = Tokens(torch, SHAPE, Load(spread=1.5), 4, "cpu")
    worth, keys, _ = tokens.prompt(50, seed=5)
    scores = torch.einsum("hd,thd->ht", tokens.unit * math.sqrt(64), keys.float()) / 8
    rows = scores[:, None].expand(-1, 50, -1).masked_fill(torch.ones(50, 50).triu(1).bool(), -torch.inf)
    assert torch.allclose(rows.softmax(-1).sum(1), worth, atol=0.05)
    many, keys, _ = tokens.prompt(20000, seed=6)
    logarithms = torch.einsum("hd,thd->ht", tokens.unit, keys.float())
    assert abs(float(logarithms.std()) - 1.5) < 0.05
    q = tokens.q.float().view(4, 2, 2, 64)
    assert torch.allclose(torch.einsum("rhgd,hd->rhg", q, tokens.unit), torch.tensor(8.0), atol=0.1)
