# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over pools of an engine: prompts in chunks, decoding, every option of a layer, plans that are kept."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from attn.serving import Layer, Plans, split_lines, write_tokens  # noqa: E402

Q, KV, DIM, PAGE = 4, 2, 16, 16
NULL = 0  # The page that engines name where a window has passed.


class Engine:
    """Pools of exactly the pages that sequences have, in float16, and the tokens as they were given."""

    def __init__(self, lengths, layout="tokens first", dtype=torch.float16, page=PAGE, **options):
        self.page = page
        self.layer = Layer(q_heads=Q, kv_heads=KV, head_dim=DIM, dtype="float16", page_size=page, **options)
        self.kernel, self.plans = self.layer.compile("cpu"), Plans()
        counts = [-(-length // page) for length in lengths]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)) + 1
        self.table = torch.full((len(lengths), max(counts) + 1), NULL, dtype=torch.int32)
        for row, (count, pages) in enumerate(zip(counts, order.split(counts), strict=True)):
            self.table[row, :count] = pages
        sizes = (len(order) + 1, KV, page, 2 * DIM)
        axes = (0, 1, 2, 3) if layout == "heads first" else (0, 2, 1, 3)
        self.lines = torch.zeros([sizes[axis] for axis in axes], dtype=dtype).permute(axes)
        self.pages = split_lines(self.lines, DIM)
        self.k, self.v = ([torch.zeros(0, KV, DIM, dtype=torch.float16) for _ in lengths] for _ in "kv")
        self.tensors = {}
        if self.layer.sinks:
            self.tensors["sink_logits"] = torch.tensor([0.5, -1.0, 2.0, 0.0])
        if self.layer.alibi:
            self.tensors["slopes"] = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        if self.layer.output and self.layer.output_scales == "tensor":
            self.tensors["output_scale"] = torch.tensor([2.0**-7])

    def run(self, rows, pad=0):
        """Give the sequences so many new tokens; return results and what float64 says, of all rows."""
        total = sum(rows)
        k, v = (torch.randn(total + pad, KV, DIM, dtype=torch.float16) for _ in "kv")
        q, slots, row = torch.randn(total + pad, Q, DIM, dtype=torch.float16), [], 0
        for sequence, count in enumerate(rows):
            begin = len(self.k[sequence])
            slots += [
                int(self.table[sequence, at // self.page]) * self.page + at % self.page
                for at in range(begin, begin + count)
            ]
            for kept, new in ((self.k, k), (self.v, v)):
                kept[sequence] = torch.cat([kept[sequence], new[row : row + count]])
            row += count
        write_tokens(*self.pages, k, v, torch.tensor(slots + [-1] * pad))
        starts = [0, *itertools.accumulate(rows)]
        out = torch.full_like(q, 7).to(torch.float8_e4m3fn if self.layer.output else q.dtype)
        self.step = self.plans.step(starts, [len(each) for each in self.k], self.table)
        scales = self.tensors.get("output_scale", torch.ones(()))
        if self.layer.output_scales == "head":
            scales = torch.full((len(q), Q), 7.0)
            named = {"out": out, "output_scales": scales}
            found, of_heads = self.step.run(self.kernel, q, self.pages, **named, **self.tensors)
            assert of_heads is scales and (scales[total:] == 7).all()
            scales = scales[:total, :, None]
        else:
            found = self.step.run(self.kernel, q, self.pages, out=out, **self.tensors)
        assert found is out and (out[total:].double() == 7).all()
        wanted = [
            self.reference(q[starts[i] : starts[i + 1]], self.k[i], self.v[i]) for i in range(len(rows))
        ]
        return out[:total].double() * scales, torch.cat(wanted)

    def reference(self, q, k, v):
        layer, count, tokens = self.layer, len(q), len(k)
        k, v = (x.double().repeat_interleave(Q // KV, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q.double(), k) * (layer.scale or DIM**-0.5)
        if layer.softcap:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        far = torch.arange(tokens - count, tokens)[:, None] - torch.arange(tokens)
        if layer.alibi:
            scores = scores - self.tensors["slopes"].double()[:, None, None] * far
        scores = scores.masked_fill((far < 0) | (far >= (layer.window or tokens)), -torch.inf)
        if layer.sinks:
            logits = self.tensors["sink_logits"].double()[:, None, None].expand(-1, count, 1)
            scores = torch.cat([scores, logits], -1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :tokens], v)


OPTIONS = [
    dict(),
    dict(window=20),
    dict(softcap=2.0, scale=0.5),
    dict(alibi=True),
    dict(sinks=True, window=20),
    dict(softcap=1.0, alibi=True, sinks=True, window=33, scale=1.0),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: " ".join(each) or "causal")
def test_chunks_and_decoding_are_as_in_float64(options):
    torch.manual_seed(0)
    engine = Engine([50, 19, 5], **options)
    for rows in ([32, 0, 3], [14, 16, 1], [1, 1, 1], [1, 1, 0], [2, 1, 0]):
        found, wanted = engine.run(rows, pad=2)
        torch.testing.assert_close(found, wanted, atol=4e-3, rtol=4e-3)
    assert [len(each) for each in engine.k] == [50, 19, 5]


def assert_quantized(found, wanted):
    """Compare within a half of e4m3's last place, beside the error of outputs in float16."""
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=2.0**-4)


@pytest.mark.parametrize("scales", ["tensor", "head"])
def test_outputs_in_e4m3(scales):
    torch.manual_seed(0)
    engine = Engine([50, 19, 5], output="fp8_e4m3", output_scales=scales, sinks=True, window=20)
    for rows in ([32, 0, 3], [14, 16, 1], [1, 1, 1], [1, 1, 0], [2, 1, 0]):
        assert_quantized(*engine.run(rows, pad=2))
    step = engine.plans.step([0, 1, 1, 1], [len(each) for each in engine.k], engine.table)
    q = torch.randn(1, Q, DIM, dtype=torch.float16)
    found = step.run(engine.kernel, q, engine.pages, **engine.tensors)
    if scales == "head":
        assert found[0].dtype == torch.float8_e4m3fn and found[1].shape == (1, Q)
        return
    assert found.dtype == torch.float8_e4m3fn
    with pytest.raises(attn.TensorError, match="output_scales: this description returns none"):
        step.run(engine.kernel, q, engine.pages, output_scales=torch.empty(1, Q), **engine.tensors)
    with pytest.raises(attn.TensorError, match="output_scale: the description takes this tensor"):
        step.run(engine.kernel, q, engine.pages, sink_logits=engine.tensors["sink_logits"])


@pytest.mark.parametrize("layout", ["tokens first", "heads first"])
@pytest.mark.parametrize("page", [6, 48, 528])
def test_pages_that_are_no_power_of_two(page, layout):
    """Chunks and decoding cross the borders of pages, with a window, too."""
    torch.manual_seed(0)
    for options in ({}, dict(window=page // 2 + 3)):
        engine = Engine([2 * page + 1, page, 5], layout, page=page, **options)
        for rows in ([page - 1, 2, 3], [1, page - 3, 1], [page, 1, 1], [1, 0, 0]):
            found, wanted = engine.run(rows, pad=1)
            torch.testing.assert_close(found, wanted, atol=4e-3, rtol=4e-3)


def test_heads_may_lie_before_tokens():
    torch.manual_seed(0)
    found, wanted = Engine([40, 16], layout="heads first").run([40, 16])
    torch.testing.assert_close(found, wanted, atol=4e-3, rtol=4e-3)


def test_floats_of_8_bits_with_a_scale():
    torch.manual_seed(0)
    engine = Engine([30], format="fp8_e4m3", dtype=torch.uint8)
    pages = split_lines(engine.lines.view(torch.float8_e4m3fn), DIM)
    k, v = (torch.randn(30, KV, DIM, dtype=torch.float16) for _ in "kv")
    scales = torch.tensor([0.5]), torch.tensor([0.25])
    slots = engine.table[0, torch.arange(30) // PAGE] * PAGE + torch.arange(30) % PAGE
    write_tokens(*pages, k, v, slots, k_scale=scales[0], v_scale=scales[1])
    kept = [
        pool[slots // PAGE, slots % PAGE].float() * scale for pool, scale in zip(pages, scales, strict=True)
    ]
    assert (kept[0] - k).abs().max() < 0.2 and (kept[1] - v).abs().max() < 0.2
    q = torch.randn(30, Q, DIM, dtype=torch.float16)
    found = engine.plans.step([0, 30], [30], engine.table).run(engine.kernel, q, (*pages, *scales))
    torch.testing.assert_close(found.double(), engine.reference(q, *kept), atol=8e-3, rtol=8e-3)


def test_far_positions_read_the_window_alone():
    """The table of a windowed group names the null page for all pages that the window has passed."""
    torch.manual_seed(0)
    engine, length = Engine([48], window=20), 1_000_010
    engine.run([47])
    whole = torch.full((1, -(-length // PAGE)), NULL, dtype=torch.int32)
    whole[0, -2:] = engine.table[0, :2]
    engine.lines[NULL] = torch.nan
    q = torch.randn(1, Q, DIM, dtype=torch.float16)
    kept = PAGE + length % PAGE  # Tokens in the last two pages, among them those of the window.
    found = engine.plans.step([0, 1], [length], whole).run(engine.kernel, q, engine.pages)
    wanted = engine.reference(q, engine.k[0][:kept], engine.v[0][:kept])
    torch.testing.assert_close(found.double(), wanted, atol=4e-3, rtol=4e-3)


def test_plans_are_kept_by_kernel_and_kind_of_step():
    torch.manual_seed(0)
    engine = Engine([64, 64])
    engine.run([20, 1])
    prompts = engine.step.plan(engine.kernel, *[None] * 2)
    engine.run([1, 1])
    decoding = engine.step.plan(engine.kernel, *[None] * 2)
    assert decoding is not prompts and decoding.stats["extended"] == 0
    engine.run([1, 1])
    assert engine.step.plan(engine.kernel, *[None] * 2) is decoding and decoding.stats["extended"] == 1
    engine.run([4, 2])
    assert engine.step.plan(engine.kernel, *[None] * 2) is prompts and len(engine.plans.kept) == 2


def test_layers_of_a_step_share_its_plan(monkeypatch):
    engine, planned = Engine([8]), []
    plan = attn.Kernel.plan
    monkeypatch.setattr(attn.Kernel, "plan", lambda *given: planned.append(1) or plan(*given))
    engine.run([8])
    q = torch.randn(8, Q, DIM, dtype=torch.float16)
    one, other = (engine.step.run(engine.kernel, q, engine.pages) for _ in range(2))
    assert torch.equal(one, other) and planned == [1]


def test_a_step_whose_plan_another_took_is_refused():
    engine = Engine([20, 20])
    engine.run([9, 1])
    first, q = engine.step, torch.randn(10, Q, DIM, dtype=torch.float16)
    engine.run([1, 1])  # It has a plan of its own kind.
    first.run(engine.kernel, q, engine.pages)
    engine.run([2, 8])
    with pytest.raises(attn.PlanError, match="step: its plan is a later step's now; keep a Plans for each"):
        first.run(engine.kernel, q, engine.pages)


def test_tables_may_change_after_the_step_is_made():
    engine = Engine([40])
    engine.run([40])
    q = torch.randn(1, Q, DIM, dtype=torch.float16)
    starts, lengths = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([40], dtype=torch.int32)
    step = engine.plans.step(starts, lengths, engine.table)
    engine.table.zero_(), lengths.fill_(1), starts.zero_()
    found = step.run(engine.kernel, q, engine.pages).double()
    torch.testing.assert_close(found, engine.reference(q, engine.k[0], engine.v[0]), atol=4e-3, rtol=4e-3)


def test_wrong_tables_are_refused():
    engine = Engine([20])
    engine.run([20])
    q = torch.randn(1, Q, DIM, dtype=torch.float16)
    with pytest.raises(attn.PlanError, match=r"q_start: expected \[2\], one more than lengths"):
        engine.plans.step([0, 1, 2], [20], engine.table)
    with pytest.raises(attn.PlanError, match=r"block_table: expected \[1, pages\]"):
        engine.plans.step([0, 1], [20], torch.zeros(2, 2, dtype=torch.int32))
    stray = engine.table.clone()
    stray[0, 1] = len(engine.lines)
    with pytest.raises(attn.PlanError, match="kv.block_table"):
        engine.plans.step([0, 1], [20], stray).run(engine.kernel, q, engine.pages)
    with pytest.raises(attn.PlanError):
        engine.plans.step([0, 1], [60], engine.table).run(engine.kernel, q, engine.pages)
