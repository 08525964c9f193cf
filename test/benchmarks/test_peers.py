# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peers that may not be installed, and what all sides of a contest are given: the same attention."""

import sys
import types
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import contest  # noqa: E402
from contest import Contest  # noqa: E402
from measuring import peers  # noqa: E402
from measuring.tensors import Tensors, difference, paged  # noqa: E402
from parts.attention import decode_points, feature_points, prefill_points  # noqa: E402
from parts.batches import batch_points  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402


class CountingTimer:
    """Runs every side once; `milliseconds` by name."""

    def __init__(self, **milliseconds):
        self.milliseconds, self.lasting = milliseconds, []

    def alone(self, functions):
        for function in functions.values():
            function()
        return {name: self.milliseconds.get(name, 1.0) for name in functions}

    def sustained(self, functions, alone, record, declined):
        self.lasting = list(functions)
        for name in functions:
            record(name)()
        return {name: 1.1 * alone[name] for name in functions}


def small(point, tokens=70):
    """Shrink a point to tokens and heads that a CPU computes in a moment; keep groups and ragged lengths."""
    problem, batch = point.problem, min(3, len(point.lengths))
    lengths = tuple(tokens + 3 * i if problem.store == "packed" else tokens for i in range(batch))
    heads = {"q_heads": 2 * problem.group, "kv_heads": 2, "see": problem.see.replace("4096", "40")}
    return replace(point, lengths=lengths, problem=replace(problem, **heads))


def by_name(points):
    return pytest.mark.parametrize("point", points, ids=lambda p: p.key)


@pytest.fixture
def exact(monkeypatch):
    """Peers that need a GPU, from their documentation: FlashInfer in NHD, FlashAttention-4 in bshd."""
    library = types.SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=PagedWrapper,
        BatchPrefillWithRaggedKVCacheWrapper=RaggedWrapper,
        single_prefill_with_kv_cache=single,
    )
    cute = types.SimpleNamespace(
        flash_attn_func=lambda q, k, v, causal: (single_batch(q, k, v, causal), None)
    )
    monkeypatch.setitem(sys.modules, "flashinfer", library)
    monkeypatch.setitem(sys.modules, "flash_attn", types.SimpleNamespace(cute=cute))
    monkeypatch.setitem(sys.modules, "flash_attn.cute", cute)


def single_batch(q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return sdpa(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)


def single(q, k, v, causal):
    return single_batch(q[None], k[None], v[None], causal)[0]


class PagedWrapper:
    """FlashInfer's wrapper, after its documentation: pages by their table, the last one partial."""

    def __init__(self, workspace, layout, use_tensor_cores):
        assert layout == "NHD" and use_tensor_cores and workspace.count_nonzero() == 0

    def plan(self, starts, places, last, q_heads, kv_heads, dim, page, q_data_type, kv_data_type):
        assert starts.dtype == places.dtype == last.dtype == torch.int32
        self.starts, self.places, self.last, self.heads = starts, places, last, (q_heads, kv_heads)

    def run(self, rows, pages, out):
        for i, row in enumerate(rows):
            mine = self.places[self.starts[i] : self.starts[i + 1]].long()
            k, v = (x[mine].flatten(0, 1)[: (len(mine) - 1) * x.shape[1] + self.last[i]] for x in pages)
            assert (len(row), k.shape[1]) == self.heads
            out[i] = single(row[None], k.to(row.dtype), v.to(row.dtype), False)[0]
        return out


class RaggedWrapper:
    """FlashInfer's wrapper for ragged prefill, after its documentation."""

    def __init__(self, workspace, layout):
        assert layout == "NHD" and workspace.count_nonzero() == 0

    def plan(self, starts, kv_starts, q_heads, kv_heads, dim, head_dim_vo, causal, q_data_type, kv_data_type):
        self.spans = list(zip(starts[:-1], starts[1:], kv_starts[:-1], kv_starts[1:], strict=True))
        self.causal, self.shapes = causal, ((q_heads, dim), (kv_heads, dim), (kv_heads, head_dim_vo))

    def run(self, q, k, v, out):
        assert tuple(x.shape[1:] for x in (q, k, v)) == self.shapes
        for a, b, c, d in self.spans:
            out[a:b] = single(q[a:b], k[c:d], v[c:d], self.causal)
        return out


PREFILL = [p for p in prefill_points(False) if p.lengths[0] == 2048 and p.problem.q_heads == 32]
BATCHES = {
    (p.problem.dim, p.problem.see, p.problem.q_heads, len(p.lengths) > 1): p for p in batch_points(False)
}
SOME = [PREFILL[0], PREFILL[1], decode_points(True)[0], decode_points(True)[1], *list(BATCHES.values())[::4]]


@by_name(SOME)
def test_every_side_computes_the_same(point, exact):
    """On the host device and the CPU: each peer's result is within the bound of attn's."""
    point = small(point)
    match = Contest(torch, CountingTimer(), "cpu")
    for name in ("flash", "flashinfer", "flashinfer, single", "flash4"):
        if name == "flashinfer, single" and (point.rows or len(point.lengths) > 1):
            continue
        measured = match(point, (name,))
        if point.problem.dim != point.problem.value_dim and name == "flash":
            assert "flash" in measured.declined and measured.judge == "definition"
            continue
        assert list(measured.alone) == ["attn", name] and measured.judge == name, measured.declined
        assert 0 < measured.difference < contest.DIFFERENCE
        assert set(measured.about) >= {"predicted_ms", "schedule", "kernel", "blocks", "balance"}


@by_name(feature_points(False))
def test_features_are_judged_by_their_definition(point):
    measured = Contest(torch, CountingTimer(), "cpu")(small(point), ())
    assert measured.judge == "definition" and 0 < measured.difference < contest.DIFFERENCE
    assert list(measured.alone) == list(measured.sustained) == ["attn"]


def corrupted(side, **change):
    """attn's side with a result that is wrong in one number."""

    def result():
        out = side.result().clone()
        out[-1, -1, -1, -1] += 0.1
        return out

    return replace(side, result=result)


@pytest.mark.parametrize("peers_of", [(), ("flash",)], ids=["definition", "peer"])
def test_a_wrong_result_does_not_count(peers_of, monkeypatch):
    """One number of the last row and head, which is off by a fifth of a standard deviation of an input."""
    right, timer = contest.attn_side, CountingTimer()

    def wrong(torch, tensors):
        side, about = right(torch, tensors)
        return corrupted(side), about

    monkeypatch.setattr(contest, "attn_side", wrong)
    point = small(prefill_points(True)[0])
    judge = "flash" if peers_of else "definition"
    with pytest.raises(RuntimeError, match=f"{point.key}: attn's result differs from that of {judge} by"):
        Contest(torch, timer, "cpu")(point, peers_of)
    assert not timer.lasting


def test_a_result_that_is_not_a_number_does_not_pass():
    good = torch.ones(5, 2, 8)
    bad = good.clone()
    bad[3, 1, 2] = float("nan")
    assert difference(good, good) == 0 and difference(bad, good) == float("inf")


def test_peers_read_the_memory_that_attn_reads(exact):
    """Views, not copies, of what attn is given; and decoding by FlashInfer reads attn's pages."""
    tensors = Tensors(torch, small(batch_points(True)[0]), "cpu")
    memory = [x.data_ptr() for x in (tensors.q, tensors.k, tensors.v)]
    assert [x.data_ptr() for x in tensors.heads_first()] == memory
    assert [x.data_ptr() for x in tensors.operands()] == memory[1:]
    decode = Tensors(torch, small(decode_points(True)[0]), "cpu")
    read = []
    keep = PagedWrapper.run
    PagedWrapper.run = lambda self, rows, pages, out: (
        read.append((rows, *pages)),
        keep(self, rows, pages, out),
    )[1]
    try:
        peers.flashinfer(torch, decode).run()
    finally:
        PagedWrapper.run = keep
    assert [x.data_ptr() for x in read[0]] == [x.data_ptr() for x in (decode.q, *decode.operands())]


def test_far_peers_are_not_sustained(exact):
    timer = CountingTimer(flash=2.0, flashinfer=2.5, flash4=2.7)
    measured = Contest(torch, timer, "cpu")(small(prefill_points(True)[0]), ("flash", "flashinfer", "flash4"))
    assert list(measured.alone) == ["attn", "flash", "flashinfer", "flash4"]
    assert timer.lasting == list(measured.sustained) == ["attn", "flash", "flashinfer"]


@pytest.mark.parametrize("tokens", [1, 16, 50])
def test_pages_hold_their_tokens(tokens):
    keys = torch.randn(3, tokens, 2, 8)
    pool, table = paged(torch, keys, 16)
    assert torch.equal(pool[table.long()].flatten(1, 2)[:, :tokens], keys)


def test_pages_are_a_permutation():
    pool, table = paged(torch, torch.randn(4, 160, 1, 1), 16)
    assert sorted(table.flatten().tolist()) == list(range(40)) != table.flatten().tolist()
    assert pool.shape == (40, 16, 1, 1)


@pytest.mark.parametrize(
    "point", [prefill_points(True)[0], decode_points(True)[0]], ids=["prefill", "decode"]
)
def test_without_them_the_others_are_measured(point, monkeypatch):
    for name in ("flashinfer", "flash_attn.cute"):
        monkeypatch.setitem(sys.modules, name, None)
    measured = Contest(torch, CountingTimer(), "cpu")(small(point), ("flashinfer", "flash4"), ours=False)
    assert measured.declined == {"flashinfer": "is not installed", "flash4": "is not installed"}
    assert not measured.alone and not measured.sustained


def test_a_backend_that_declines_grouped_heads_gets_them_expanded(monkeypatch):
    real = torch.nn.functional.scaled_dot_product_attention

    def refuses(q, k, v, is_causal, enable_gqa):
        if enable_gqa:
            raise RuntimeError("No available kernel.\nAborting execution.")
        return real(q, k, v, is_causal=is_causal)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuses)
    match = Contest(torch, CountingTimer(), "cpu")
    measured = match(small(prefill_points(True)[0]), ("flash",))
    assert list(measured.alone) == ["attn", "flash, heads expanded"]
    assert measured.declined == {"flash": "No available kernel."}
    assert list(match(small(decode_points(True)[0]), ("flash",)).alone) == ["attn"]  # it would be other work
