# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that decodes codes, as far as no GPU is needed: its points, tensors, sides and bars."""

import json
import sys
import types
from dataclasses import replace

import pytest
from benchlab import SESSION, FakeRun, bench_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import contest  # noqa: E402
from catalogue import bars  # noqa: E402
from contest import Contest  # noqa: E402
from measure import Clock, measure_all, verdict  # noqa: E402
from measuring.codes import TENSOR_SCALE, CodedTensors, decode_codes, draw_codes  # noqa: E402
from measuring.report import import_attn  # noqa: E402
from measuring.tensors import paged  # noqa: E402
from parts.quantized import (  # noqa: E402
    BASELINE,
    FORMATS,
    MAIN,
    MANY_BYTES,
    PEER,
    quantized_points,
    shapes_of,
)
from test_peers import CountingTimer, PagedWrapper, corrupted  # noqa: E402

POINTS = quantized_points(False)


def small(point, tokens=70):
    """Shrink a point to tokens and heads that a CPU computes in a moment."""
    batch = min(3, len(point.lengths))
    ragged = len(set(point.lengths)) > 1
    lengths = tuple(tokens + 23 * i * ragged for i in range(batch))
    return replace(point, lengths=lengths, q_heads=2 * point.q_heads // point.kv_heads, kv_heads=2)


# --- points -------------------------------------------------------------------------------------------------


def test_points_are_what_was_asked_for():
    assert {p.format.name for p in POINTS} == set(FORMATS)
    large = [p for p in POINTS if p.kv_bytes() >= MANY_BYTES]
    for format in MAIN:
        mine = [p for p in large if p.format.name == format]
        assert {p.q_heads // p.kv_heads for p in mine} == {1, 4, 8, 16}
        assert {len(p.lengths) for p in mine} > {1, 4, 256} and {p.page for p in mine if not p.unified} == {
            16,
            64,
            256,
        }
        assert any(len(set(p.lengths)) == len(p.lengths) == 32 for p in mine)
        assert any(p.unified for p in mine) == format.startswith("K")
    equal = [p for p in POINTS if p not in large]
    assert {p.format.name for p in equal} == set(FORMATS)
    assert {p.plain_bytes() for p in equal} == {MANY_BYTES}
    assert all(p.kv_bytes() < 1.1 * MANY_BYTES and p.plain_bytes() < 3e9 for p in large)


def test_bytes_are_those_of_the_store():
    """Codes and metadata by line, as the runtime counts them."""
    import_attn()
    from attn.memory.formats import describe_store

    def text(coding):
        return f"{coding.code.lower()} per {coding.per}" + (f" by {coding.by.lower()}" if coding.by else "")

    for format in FORMATS.values():
        point = shapes_of(format)["usual"]
        formats = text(format.key), text(format.value)
        store = describe_store("paged", 16, False, 8, 128, 128, *formats)
        assert point.kv_bytes() == sum(point.lengths) * 8 * store.token_bytes


# --- tensors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_are_those_of_codes(format):
    attn = import_attn()
    for coding in (FORMATS[format].key, FORMATS[format].value):
        codes, meta = draw_codes(torch, coding, 37, 3, 128, "cpu")
        name = f"int{coding.bits}" if coding.group else format if coding.by else "fp8_e4m3"
        more = {"group": coding.group} if coding.group else {} if coding.by else {"scales": coding.per}
        if coding.has_tensor_scale:
            more["tensor_scale"] = TENSOR_SCALE
        expected = attn.dequantize(codes.view(torch.uint8), meta, name, **more)
        assert torch.equal(decode_codes(torch, coding, codes, meta), expected.bfloat16())
        assert 0.5 < expected.std() < 2


def test_pages_of_ragged_sequences():
    sequences = [torch.randn(n, 2, 4) for n in (40, 1, 16, 33)]
    pool, table = paged(torch, sequences, 16)
    assert pool.shape == (8, 16, 2, 4) and table.shape == (4, 3)
    assert sorted(table[table >= 0].tolist()) == list(range(8))
    for tokens, row in zip(sequences, table, strict=True):
        pages = row[row >= 0].long()
        assert torch.equal(pool[pages].flatten(0, 1)[: len(tokens)], tokens)


def test_lines_of_a_head_lie_together():
    point = small(shapes_of(FORMATS["K4V4 per 32"])["ragged"])
    tensors = CodedTensors(torch, point, "cpu")
    codes, _, meta, _ = tensors.pages
    assert codes.shape[1:] == (2, 16, 64) and meta.shape[1:] == (2, 16, 4, 2)
    page, first = tensors.table[1, 0].long(), point.lengths[0]
    numbers = decode_codes(torch, point.format.key, codes[page].transpose(0, 1), meta[page].transpose(0, 1))
    assert torch.equal(numbers, tensors.plain.k[first : first + 16])
    assert tensors.q is tensors.plain.q


# --- sides --------------------------------------------------------------------------------------------------


@pytest.fixture
def flashinfer(monkeypatch):
    library = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=PagedWrapper)
    monkeypatch.setitem(sys.modules, "flashinfer", library)


SIDES = [shapes["usual"] for shapes in map(shapes_of, FORMATS.values())]
SIDES += [shapes_of(FORMATS["K8V4"])[name] for name in ("group 16", "ragged", "page 256", "unified")]


@pytest.mark.parametrize("point", SIDES, ids=lambda p: p.key)
def test_all_sides_run_on_the_host(point, flashinfer):
    measured = Contest(torch, CountingTimer(), "cpu")(small(point), (BASELINE, PEER))
    assert list(measured.alone) == ["attn", BASELINE, PEER] and not measured.declined
    assert measured.judge == "definition" and 0 < measured.difference < contest.DIFFERENCE


def test_sides_compute_the_same(flashinfer):
    """bf16 and FlashInfer read the numbers that the codes stand for, e4m3 rounds them."""
    point = small(shapes_of(FORMATS["e4m3 per head"])["ragged"])
    tensors = CodedTensors(torch, point, "cpu")
    results = []
    for side in (contest.attn_side(torch, tensors)[0], contest.attn_plain(torch, tensors)):
        side.run()
        results.append(side.result().flatten(0, 1).float())
    peer = contest.makers()[PEER](torch, tensors)
    peer.run()
    results.append(peer.result().flatten(0, 1).float())
    assert (results[0] - results[1]).norm() < 0.01 * results[1].norm()
    assert (results[2] - results[1]).norm() < 0.1 * results[1].norm()


def test_a_wrong_result_does_not_count(monkeypatch, flashinfer):
    right = contest.attn_side
    monkeypatch.setattr(
        contest, "attn_side", lambda torch, tensors: (corrupted(right(torch, tensors)[0]), {})
    )
    with pytest.raises(RuntimeError, match="attn's result differs from that of definition by"):
        Contest(torch, CountingTimer(), "cpu")(small(SIDES[0]), (BASELINE, PEER))


# --- rows ---------------------------------------------------------------------------------------------------


def test_rows_say_what_was_measured(tmp_path, capsys):
    bench, results = bench_of(FakeRun(0.2), tmp_path, {BASELINE: 0.5, PEER: 0.3})
    point = shapes_of(FORMATS["K8V4"])["usual"]
    assert measure_all([point], bench, Clock(None), results) == ([], {})
    [row] = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert row["format"] == "K8V4" and row["heads"] == [32, 8] and row["store"] == "paged<16>"
    assert row["over_bf16"] == pytest.approx(2.5) and row["byte_ratio"] == pytest.approx(512 / 200)
    assert row["bytes_per_second"] == pytest.approx(point.kv_bytes() / 0.2e-3)
    assert row["bf16_copy_share"] == pytest.approx(point.plain_bytes() / 0.5e-3 / 4e12)
    assert row["peers_ms"] == {PEER: 0.3} and row["ratio_to_best_peer"] == pytest.approx(1.5)
    assert bars(row, SESSION) == [
        ("2.30 times as fast as bf16", True),
        ("faster than FlashInfer's fp8", True),
    ]
    assert "x2.50 of bf16, bytes x2.56 (0.98)" in capsys.readouterr().out
    verdict(results.rows.values(), {SESSION["id"]: SESSION})
    assert "bars: 2 of 2 met" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("format", "large", "small"),
    [
        ("e4m3 per tensor", 1.8, None),
        ("e4m3 per head", 1.8, None),
        ("e4m3 per token", 1.74, None),
        ("K8V8", 1.74, 1.7),
        ("K8V4", 2.3, 2.1),
        ("K4V2", 4.4, 3.5),
        ("K4V4", 0.9 * 512 / 136, None),
    ],
)
def test_bars(format, large, small, tmp_path):
    bench, _ = bench_of(FakeRun(1.0), tmp_path, {BASELINE: 1.0})
    rows = [bench(p) for p in POINTS if p.format.name == format]
    assert rows[0]["bar"] == small
    for row in rows[1:]:
        assert row["bar"] == pytest.approx(large)
        assert bars(row, SESSION) == [(f"{large:.2f} times as fast as bf16", False)]


def test_without_bf16_nothing_is_said(tmp_path, monkeypatch):
    bench, results = bench_of(FakeRun(1.0), tmp_path)
    real = bench.contest

    def declines(point, names):
        measured = real(point, names)
        measured.declined = {BASELINE: "out of memory"}
        return measured

    monkeypatch.setattr(bench, "contest", declines)
    _, failed = measure_all(SIDES[:1], bench, Clock(None), results)
    assert failed == {SIDES[0].key: f"{SIDES[0].key}: {BASELINE}: out of memory"} and not results.rows
