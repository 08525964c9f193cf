# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of drafts: rows see the tokens in front, their ancestors and themselves, as in float64."""

import random

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from attn.serving import DraftPlans, Layer, compile_drafts, pages_of, parents_of  # noqa: E402

Q, KV, DIM, SLOTS = 4, 2, 16, 256


def random_tree(numbers, drafts):
    """Parents of drafts, some of which follow the tokens in front."""
    return [numbers.randrange(-1, i) for i in range(drafts)]


def masks(parents):
    """Whether each draft sees another."""
    seen = numpy.eye(len(parents), dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            seen[i] |= seen[parent]
    return seen


class Batch:
    """Sequences whose tokens lie in pages, and whose drafts lie anywhere, as their slots say."""

    def __init__(self, contexts, trees, page_size=16, dtype=torch.float16, **options):
        self.layer = Layer(
            q_heads=Q, kv_heads=KV, head_dim=DIM, dtype="float16", page_size=page_size, **options
        )
        self.contexts, self.trees, self.page_size = contexts, trees, page_size
        self.pools = torch.randn(2, SLOTS, KV, DIM).to(dtype).unbind(0)
        free = torch.randperm(SLOTS // page_size).tolist()
        counts = [-(-context // page_size) for context in contexts]
        self.table = torch.zeros(len(contexts), max(counts) + 1, dtype=torch.int32)
        for row, count in enumerate(counts):
            self.table[row, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
        rest = [page * page_size + at for page in free for at in range(page_size)]
        random.Random(3).shuffle(rest)
        self.slots = torch.tensor([rest.pop() for tree in trees for _ in tree], dtype=torch.int32)
        self.starts = numpy.cumsum([0, *map(len, trees)])
        self.tensors = {}
        if self.layer.sinks:
            self.tensors["sink_logits"] = torch.tensor([0.5, -1.0, 2.0, 0.0])
        if self.layer.alibi:
            self.tensors["slopes"] = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        self.scales = () if self.layer.format is None else (torch.tensor([0.5]), torch.tensor([0.25]))

    def tables(self):
        lengths = [context + len(tree) for context, tree in zip(self.contexts, self.trees, strict=True)]
        return self.starts, lengths, self.table, self.slots, sum(self.trees, [])

    def run(self, kernel, plans, **options):
        self.q = torch.randn(int(self.starts[-1]) + 2, Q, DIM, dtype=torch.float16)
        step = plans.step(*self.tables())
        pages, tokens = (
            (*(pages_of(pool, size) for pool in self.pools), *self.scales) for size in (self.page_size, 1)
        )
        return step.run(kernel, self.q, pages, tokens, **options, **self.tensors)

    def wanted(self):
        found, layer = [], self.layer
        pools = [
            pool.double() * float(scale)
            for pool, scale in zip(self.pools, self.scales or (1, 1), strict=True)
        ]
        for i, (context, tree) in enumerate(zip(self.contexts, self.trees, strict=True)):
            at = torch.arange(context)
            front = self.table[i, at // self.page_size].long() * self.page_size + at % self.page_size
            slots = torch.cat([front, self.slots[self.starts[i] : self.starts[i + 1]].long()])
            k, v = (pool[slots].repeat_interleave(Q // KV, 1) for pool in pools)
            depth = torch.from_numpy(masks(tree).sum(-1) - 1)
            far = (context + depth)[:, None] - torch.cat([at, context + depth])
            seen = torch.cat([torch.ones(len(tree), context, dtype=bool), torch.from_numpy(masks(tree))], 1)
            q = self.q[self.starts[i] : self.starts[i + 1]].double()
            scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
            if layer.softcap:
                scores = layer.softcap * torch.tanh(scores / layer.softcap)
            if layer.alibi:
                scores = scores - self.tensors["slopes"].double()[:, None, None] * far
            scores = scores.masked_fill(~seen | (far >= (layer.window or SLOTS)), -torch.inf)
            if layer.sinks:
                logits = self.tensors["sink_logits"].double()[:, None, None].expand(-1, len(tree), 1)
                scores = torch.cat([scores, logits], -1)
            found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(slots)], v))
        return torch.cat(found)


OPTIONS = [
    dict(),
    dict(page_size=1, window=20),
    dict(window=3),
    dict(softcap=2.0, alibi=True, sinks=True, window=33),
    dict(format="fp8_e4m3", dtype=torch.float8_e4m3fn),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: " ".join(each) or "causal")
def test_drafts_are_as_in_float64(options):
    torch.manual_seed(0)
    numbers, plans, kernel = random.Random(1), DraftPlans(), None
    for contexts in ([50, 19, 0], [51, 20, 33]):
        trees = [random_tree(numbers, drafts) for drafts in (9, 1, 6)]
        batch = Batch(contexts, trees, **options)
        kernel = kernel or compile_drafts(batch.layer, "cpu")
        found = batch.run(kernel, plans)
        torch.testing.assert_close(found.double(), batch.wanted(), atol=8e-3, rtol=8e-3)


def test_a_chain_is_as_causal_rows():
    torch.manual_seed(0)
    batch = Batch([40, 7], [[-1, 0, 1, 2], [-1, 0, 1, 2]])
    batch.run(compile_drafts(batch.layer, "cpu"), DraftPlans())
    assert masks([-1, 0, 1, 2]).tolist() == numpy.tri(4, dtype=bool).tolist()


def test_rows_past_the_step_are_not_written():
    torch.manual_seed(0)
    batch = Batch([20], [[-1, 0, 0]])
    out = torch.full((5, Q, DIM), 7.0, dtype=torch.float16)
    found = batch.run(compile_drafts(batch.layer, "cpu"), DraftPlans(), out=out)
    assert found is out and (out[3:] == 7).all()
    torch.testing.assert_close(out[:3].double(), batch.wanted(), atol=8e-3, rtol=8e-3)


def test_outputs_in_e4m3():
    torch.manual_seed(0)
    batch = Batch([20, 3], [[-1, 0, 0], [-1, 0]], output="fp8_e4m3")
    batch.tensors["output_scale"] = torch.tensor([2.0**-7])
    kernel = compile_drafts(batch.layer, "cpu")
    for out in (
        None,
        torch.zeros(5, Q, DIM, dtype=torch.float8_e4m3fn),
        torch.zeros(5, Q, DIM, dtype=torch.uint8),
    ):
        found = batch.run(kernel, DraftPlans(), **({} if out is None else {"out": out}))
        numbers = found.view(torch.float8_e4m3fn).double() * 2.0**-7
        torch.testing.assert_close(numbers, batch.wanted(), atol=4e-3, rtol=2.0**-4)


def test_outputs_in_e4m3_with_their_scales():
    torch.manual_seed(0)
    batch = Batch([20, 3], [[-1, 0, 0], [-1, 0]], output="fp8_e4m3", output_scales="head")
    kernel = compile_drafts(batch.layer, "cpu")
    into = {"out": torch.zeros(5, Q, DIM, dtype=torch.uint8), "output_scales": torch.zeros(7, Q)}
    for named in ({}, into):
        found, scales = batch.run(kernel, DraftPlans(), **named)
        assert not named or (found is named["out"] and scales is named["output_scales"])
        numbers = found.view(torch.float8_e4m3fn).double() * scales[:5, :, None]
        torch.testing.assert_close(numbers, batch.wanted(), atol=4e-3, rtol=2.0**-4)
    assert not scales[5:].any()
    plain = Batch([20, 3], [[-1, 0, 0], [-1, 0]])
    with pytest.raises(attn.TensorError, match="output_scales: expected None"):
        plain.run(compile_drafts(plain.layer, "cpu"), DraftPlans(), output_scales=torch.zeros(5, Q))


def test_parents_are_found_in_masks():
    numbers = random.Random(2)
    trees = [random_tree(numbers, 12) for _ in range(20)]
    assert parents_of(numpy.stack([masks(tree) for tree in trees])).tolist() == trees
    assert parents_of(torch.ones(1, 1, 1)).tolist() == [[-1]] and parents_of(
        numpy.zeros((0, 4, 4))
    ).shape == (0, 4)


def test_masks_of_no_tree_are_refused():
    seen = masks([-1, 0, 1])
    seen[2, 0] = False  # Its parent sees draft 0.
    with pytest.raises(attn.PlanError, match="draft 2 of sequence 0 sees draft 0, as its parent 1 does"):
        parents_of(seen[None])
    seen = masks([-1, 0, 0])
    seen[0, 2] = True
    with pytest.raises(attn.PlanError, match="draft 0 of sequence 0 does not see draft 2"):
        parents_of(seen[None])
    with pytest.raises(attn.PlanError, match=r"seen: expected \[sequences, drafts, drafts\]"):
        parents_of(seen)


def test_wrong_tables_are_refused():
    batch, plans = Batch([20], [[-1, 0, 0]]), DraftPlans()
    starts, lengths, table, slots, _ = batch.tables()
    for parents, given in (([-1, 1, 0], 1), ([-1, -2, 0], -2)):
        with pytest.raises(
            attn.PlanError, match=f"parents: expected -1 or a row before row 1 .* got {given}"
        ):
            plans.step(starts, lengths, table, slots, parents)
    with pytest.raises(attn.PlanError, match=r"slots: expected \[3\], the rows of q_start"):
        plans.step(starts, lengths, table, slots[:2], [-1, 0, 0])
    with pytest.raises(attn.PlanError, match=r"q_start: expected \[2\]"):
        plans.step([0], lengths, table, slots, [-1, 0, 0])
    for wrong in ([1, 4], [3, 0]):
        with pytest.raises(attn.PlanError, match="q_start: expected numbers that rise from 0, got list"):
            plans.step(wrong, lengths, table, [0] * wrong[1], [-1] * wrong[1])


def test_short_rows_and_packed_formats_are_refused():
    """Rows are put into an order first: an index past them would end a GPU's context."""
    batch, q = Batch([20], [[-1, 0, 0]]), torch.zeros(3, Q, DIM, dtype=torch.float16)
    pages, tokens = ([pages_of(pool, size) for pool in batch.pools] for size in (16, 1))
    step, kernel = DraftPlans().step(*batch.tables()), compile_drafts(batch.layer, "cpu")
    with pytest.raises(attn.TensorError, match=r"q: expected 3 rows or more, got Tensor float16 \[2, "):
        step.run(kernel, q[:2], pages, tokens)
    with pytest.raises(attn.TensorError, match=r"out: expected 3 rows or more, got Tensor float16 \[2, "):
        step.run(kernel, q, pages, tokens, out=q[:2])
    packed = Layer(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", page_size=16, format="int8")
    with pytest.raises(
        attn.SpecError, match="format: expected None, fp8_e4m3 or fp8_e5m2 for steps of drafts"
    ):
        compile_drafts(packed, "cpu")


def test_a_step_whose_plan_another_took_is_refused():
    batch, plans = Batch([20], [[-1, 0, 0]]), DraftPlans()
    kernel, step = compile_drafts(batch.layer, "cpu"), plans.step(*batch.tables())
    pages, tokens = ([pages_of(pool, size) for pool in batch.pools] for size in (16, 1))
    q = torch.randn(3, Q, DIM, dtype=torch.float16)
    assert torch.equal(step.run(kernel, q, pages, tokens), step.run(kernel, q, pages, tokens))
    plans.step(*batch.tables()).run(kernel, q, pages, tokens)
    with pytest.raises(
        attn.PlanError, match="step: its plan is a later step's now; keep DraftPlans for each"
    ):
        step.run(kernel, q, pages, tokens)
