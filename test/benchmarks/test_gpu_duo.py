# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` whose model has heads that stream, as far as no GPU is needed: a tiny one runs on the host."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from catalogue import PARTS, bars  # noqa: E402
from measure import Clock, heading, line  # noqa: E402
from measuring import report  # noqa: E402
from parts import duo  # noqa: E402
from parts.duo import BARS, Cached, DuoPoint, Llama, duo_line, measure_duo  # noqa: E402

SIZES = dict(kv_heads=2, inner=96, layers=2, hidden=256, q_heads=4, vocabulary=50, device="host")
TINY = DuoPoint("GQA", "tiny", 0.5, 700, 900, chunk=256, **SIZES)
BENCH = types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    report.import_attn()
    monkeypatch.setattr(duo, "STEPS", 1)
    monkeypatch.setattr(duo, "WARM_UP", 1)


def test_points():
    points = PARTS["duo"](False)
    assert [point.kind for point in points] == ["MHA", "GQA"] and [sum(p.classes) for p in points] == [24, 4]
    assert Clock.work(points[0]) == points[0].seconds() and "stream" in heading(points[0])
    assert [point.key for point in PARTS["duo"](True)] == ["duo: Llama-2-7B, 25% of heads keep all"]


def test_a_tiny_model():
    row = measure_duo(TINY, BENCH)
    assert set(row["phases"]["prefill"]) == set(row["phases"]["decode"]) == {"full", "duo"}
    assert row["less_keys_and_values"] == 2 and min(row["decode_speed"], row["prefill_speed"]) > 0
    assert row["name"] in line(row) == duo_line(row) and "700 tokens in chunks of 256" in line(row)
    assert len(bars(row, {})) == 4


def test_bars():
    names = ("decode_memory", "prefill_memory", "decode_speed", "prefill_speed")
    row = {"part": "duo", "kind": "MHA", **dict(zip(names, BARS["MHA"], strict=True))}
    assert [met for _, met in bars(row, {})] == [True] * 4
    assert [met for _, met in bars(row | {"decode_speed": 2.0}, {})] == [True, True, False, True]


def test_chunks_are_what_the_whole_is():
    """The model's logits do not depend on chunks, and a prompt within the recent tokens is the same to both sides."""
    with torch.no_grad():
        model = Llama(torch, TINY)
        tokens = torch.randint(50, (200,), generator=torch.Generator().manual_seed(1))
        found = []
        for side, sizes in (("full", [200]), ("full", [70, 130]), ("duo", [150, 50])):
            cached = Cached(torch, TINY, side, 300, 256)
            for chunk in tokens.split(sizes):
                positions = torch.arange(cached.length, cached.length + len(chunk))
                logits = model(chunk, positions, cached.attend(len(chunk)))
            found.append(logits.float())
    for logits in found[1:]:
        assert (logits - found[0]).abs().max() < 0.05 * found[0].abs().max()


def test_recorded_steps_are_what_steps_are():
    """A token that is written to its place directly is seen as one that the cache writes."""
    with torch.no_grad():
        model = Llama(torch, TINY)
        tokens = torch.randint(50, (301,), generator=torch.Generator().manual_seed(1))
        for side in ("full", "duo"):
            found = []
            for recorded in (False, True):
                cached = Cached(torch, TINY, side, 400, 320)
                model(tokens[:300], torch.arange(300), cached.attend(300))
                attend = cached.attend_recorded() if recorded else cached.attend(1)
                found.append(model(tokens[300:], torch.tensor([300]), attend))
            assert torch.equal(*found)


def test_streaming_heads_hold_little():
    few, all_pages = Cached(torch, TINY, "duo", 900, 256).cache, Cached(torch, TINY, "full", 900, 256).cache
    assert few.free_pages("retrieval") == all_pages.free_pages() == 58
    assert few.free_pages("streaming") == 4 + 16 + 16 + 2
