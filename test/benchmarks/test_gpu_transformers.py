# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that decodes with a model, as far as no GPU is needed: a tiny one goes through every cache."""

import os
import types

import pytest
from benchlab import SESSION

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measuring import report  # noqa: E402
from parts import transformers  # noqa: E402
from parts.transformers import CACHES, PAGED, RECORDED, ModelPoint, Shape, measure_model, model_line  # noqa: E402

TINY = Shape(layers=2, hidden=128, inner=128, q_heads=4, kv_heads=2, vocabulary=97)
EAGER = [cache for cache in CACHES if cache != "graphed"]  # compiling takes a minute


@pytest.fixture
def bench(monkeypatch):
    report.import_attn()
    monkeypatch.setattr(transformers, "TOKENS", 6)
    monkeypatch.setattr(transformers, "WARM_UP", 2)
    monkeypatch.setattr(transformers, "ROUNDS", 2)
    monkeypatch.setattr(transformers, "EAGER_ROUNDS", 3)
    monkeypatch.setattr(transformers, "REPLAYED", 6)
    monkeypatch.setattr(transformers, "FEWER", 2)
    yield types.SimpleNamespace(
        contest=types.SimpleNamespace(torch=torch), results=types.SimpleNamespace(session=SESSION)
    )
    transformers._models.clear()


def test_points():
    points = PARTS["transformers"](False)
    assert {p.cache for p in points} == set(CACHES) and {(p.batch, p.tokens) for p in points} == {
        (16, 4096),
        (1, 8192),
    }
    assert points[0].kv_bytes() == 16 * 4096 * 32 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("cache", EAGER)
def test_a_tiny_model(bench, cache):
    row = measure_model(ModelPoint(cache, 2, 40, TINY, "cpu"), bench)
    assert not row["declined"] and set(row["times_of"]) == ({"attn"} if cache in PAGED else {"attn", "sdpa"})
    least = -1e3 if cache in RECORDED else 0  # a difference of two times
    rounds = 3 if cache == "dynamic" else 2
    assert all(len(times) == rounds and min(times) > least for times in row["rounds"].values())
    assert row["floor_ms"] > 0 and row["name"] in model_line(row)


def test_sides_take_turns_in_being_first(bench):
    assert ModelPoint("dynamic", 2, 40).turns() == [("attn", "sdpa"), ("sdpa", "attn"), ("attn", "sdpa")]
    assert ModelPoint("static", 2, 40).turns() == [("attn", "sdpa"), ("sdpa", "attn")]
    assert ModelPoint("paged", 2, 40).turns() == [("attn",), ("attn",)]


def test_sides_give_the_same_tokens(bench):
    """The timed results are right: both sides choose the same tokens after the same cache."""
    point = ModelPoint("static", 2, 40, TINY, "cpu")
    model = transformers.model_of(torch, TINY, "cpu")
    torch.manual_seed(3)
    for weight in model.model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.3)
    ids = torch.randint(1, 90, (2, 41))
    cache, seen = model.make_cache(point, ids), {}
    generate = model.model.generate
    for side in ("attn", "sdpa"):
        model.model.generate = lambda *args, side=side, **named: seen.update({side: generate(*args, **named)})
        model.generate(side, point, cache, ids)
        model.rewind(cache, point)
    assert seen["attn"].shape[1] == 47 and torch.equal(seen["attn"], seen["sdpa"])


def test_recorded_sides_give_the_same_tokens(bench):
    """Recorded sides choose the same tokens after the same random keys, in pages too."""
    model = transformers.model_of(torch, TINY, "cpu", True)
    assert model.attn.merge_projections(model.model) == 0  # they are
    torch.manual_seed(3)
    for weight in model.model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.3)
    ids, seen = torch.randint(1, 90, (2, 41)), {}
    for key in (("attn", "recorded"), ("sdpa", "recorded"), ("attn", "recorded paged")):
        decoder = model.make_decoder(key[0], ModelPoint(key[1], 2, 40, TINY, "cpu"))
        generate = decoder.generate
        decoder.generate = lambda *args, key=key, generate=generate, **named: seen.setdefault(key, []).append(
            generate(*args, **named)
        )
        model.replay(key[0], decoder, ids)
    first, *others = seen.values()
    assert [found.shape[1] for found in first] == [43, 43, 47] and len(others) == 2
    assert all(torch.equal(a, b) for found in others for a, b in zip(first, found, strict=True))


def test_bars():
    row = {
        "part": "transformers",
        "cache": "graphed",
        "floor_ms": 5.0,
        "times_of": {"attn": 6.0, "sdpa": 6.1},
    }
    assert [met for _, met in bars(row, SESSION)] == [True, True]
    assert [met for _, met in bars(row | {"times_of": {"attn": 6.3, "sdpa": 6.2}}, SESSION)] == [False, False]
    assert [met for _, met in bars(row | {"cache": "recorded"}, SESSION)] == [True, True]
    assert [met for _, met in bars(row | {"cache": "paged", "times_of": {"attn": 6.3}}, SESSION)] == []
