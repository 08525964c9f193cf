# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches in pages as engines have them, whose tokens are no power of two: sequences that grow, branch, fork and are cut
around the borders of pages, drafts, head classes with windows, captured steps, formats of fewer bits, two precisions."""

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.cache.state import CacheClass
from attn.memory.page_sizes import nearest_page_sizes  # noqa: E402
from attn.memory.tensors import from_e4m3_bits  # noqa: E402
from paged_model import DIM, KV_HEADS, LAYERS, Q_HEADS, Model, draw, make, spec  # noqa: E402

ODD = (3, 48, 784)


def test_page_sizes_that_are_refused():
    for page in (-1, 0, *range(9, 16), 17, 24, 1000, 2040, 2049, 2064, 4096):
        with pytest.raises(attn.SpecError, match=f"nearest legal: {nearest_page_sizes(page)}$"):
            attn.Paged(page_size=page)
        with pytest.raises(attn.PlanError, match="page_size: expected"):
            make(page_size=page)
    assert [nearest_page_sizes(page) for page in (0, 9, 24, 1000, 2040, 4096)] == [
        "1", "8 or 16", "16 or 32", "992 or 1008", "2032 or 2048", "2048"
    ]  # fmt: skip


@pytest.mark.parametrize("page", ODD)
def test_sequences_grow_branch_and_fork(page):
    """Lengths end one before, at and one after the border of a page; tails of pages are copied by forks and cuts."""
    kernel = attn.compile(spec(kv=[attn.Paged(page_size=page)]), device="host")
    model = Model(make(page_size=page, pages=400 if page == 3 else 40))
    nodes = [model.add() for _ in range(3)]
    model.append(nodes, [page - 1, page, page + 1])
    batch, plan = model.check(kernel, [(nodes[0], min(page - 1, 37)), nodes[1], (nodes[2], 2)])
    for _ in range(3):
        model.append(nodes, [1, 1, 1])
    model.check(kernel, nodes)
    twin = model.fork(nodes[0])
    model.append([twin, nodes[0]], [2, page])
    model.branch(nodes[1], 2)
    model.append(model.leaves(), [1] * len(model.leaves()))
    model.check(kernel, model.leaves())
    model.truncate(twin, 4)
    model.truncate(nodes[2], page + 2)
    model.append([nodes[2]], [2 * page])
    model.check(kernel, [(nodes[2], 5), twin])
    model.prune(twin)
    model.append([nodes[0]], [1])
    model.check(kernel, model.leaves())


def test_drafts_in_pages_of_one_beside_odd_pages():
    kernel = attn.compile(
        spec(kv=[attn.Paged(name="nodes", page_size=48), attn.Paged(name="drafts", page_size=1)]),
        device="host",
    )
    model = Model(make(draft_page=1, page_size=48))
    node = model.add()
    model.append([node], [47])
    model.speculate(node, [-1, -1, 0, 2, 1])
    model.check(kernel, [(node, 2, True)])
    model.commit(node, 3)
    assert model.cache.tokens(node) == 50
    model.check(kernel, [(node, 4)])


@pytest.mark.parametrize("page", [48, 784])
def test_classes_with_windows_give_pages_back(page):
    """A streaming class keeps the first tokens and the last: attention sees them, and its other pages are free."""
    kernel = attn.compile(
        spec(
            kv=[
                attn.Paged(name="all", page_size=page, head_class="retrieval"),
                attn.Paged(name="few", page_size=page, head_class="streaming"),
            ],
            heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(4) | attn.recent(60)),
        ),
        device="host",
    )
    classes = [
        CacheClass(name="retrieval", pages=12, heads=1),
        CacheClass(name="streaming", pages=12, heads=1, recent=60, sink=4),
    ]
    cache = make(page_size=page, pages=None, classes=classes)
    node, rng = cache.add(), numpy.random.default_rng(1)
    kept = numpy.zeros((0, 2, KV_HEADS, DIM), numpy.float16)
    for count in (page - 1, 2, 1, page, page + 3, page, 1):
        new = draw(rng, count, 2, KV_HEADS, DIM)
        kept = numpy.concatenate([kept, new])
        change = cache.append([node], [count])
        for layer in range(LAYERS):
            change.write(layer, *(numpy.ascontiguousarray(new[:, part]) for part in (0, 1)), classes=[0, 1])
        q = draw(rng, 1, Q_HEADS, DIM)
        out = kernel.run(q, cache.layer(1), kernel.plan(cache.batch([node], classes=[0, 1])))
        far = len(kept) - 1 - numpy.arange(len(kept))
        near = kept[(far < 60) | (numpy.arange(len(kept)) < 4)]
        for head, seen in enumerate((kept, near)):
            mine = slice(2 * head, 2 * head + 2)
            o, _ = oracle.attend(q[0, mine], *(seen[:, part, head : head + 1] for part in (0, 1)))
            assert oracle.error(out[0, mine], o) < 2e-3
    assert cache.free_pages("streaming") > cache.free_pages("retrieval")


@pytest.mark.parametrize("page", [48, 528])
def test_recorded_steps(page):
    """Plans of the device over tables of a recorded step: prompts in chunks, and decoding over the border of a page."""
    kernel = attn.compile(spec(kv=[attn.Paged(page_size=page)], device_plan=True), device="host")
    cache, rng = make(page_size=page), numpy.random.default_rng(3)
    steps = cache.steps(kernel, sequences=2, rows=40, tokens=3 * page)
    nodes = [cache.add(), cache.add()]
    held = [numpy.zeros((0, 2, KV_HEADS, DIM), numpy.float16) for _ in nodes]
    q, out = (numpy.zeros((steps.rows, Q_HEADS, DIM), numpy.float16) for _ in "qo")
    k, v = (numpy.zeros((LAYERS, steps.rows, KV_HEADS, DIM), numpy.float16) for _ in "kv")
    chunks = [(37, 3)] * (page // 37) + [(page % 37 - 1, 2)] + [(1, 1)] * 3
    for counts in chunks:
        steps.append(nodes, list(counts))
        steps.update(list(zip(nodes, counts, strict=True)))
        total = sum(counts)
        q[:total], k[:, :total], v[:, :total] = (
            draw(rng, total, Q_HEADS, DIM), draw(rng, LAYERS, total, KV_HEADS, DIM), draw(rng, LAYERS, total, KV_HEADS, DIM)
        )  # fmt: skip
        plan = steps.plan()
        for layer in range(LAYERS):
            steps.write(layer, k[layer], v[layer])
        kernel.run(q, cache.layer(1), plan, out=out)
        steps.ran()
        assert steps.fault == ""
        row = 0
        for i, count in enumerate(counts):
            held[i] = numpy.concatenate(
                [held[i], numpy.stack([k[1, row : row + count], v[1, row : row + count]], 1)]
            )
            for at in range(len(held[i]) - count, len(held[i])):
                o, _ = oracle.attend(q[row], held[i][: at + 1, 0], held[i][: at + 1, 1])
                assert oracle.error(out[row], o) < 2e-3
                row += 1


@pytest.mark.parametrize("gate", ["elementwise", "headwise"])
def test_gates_come_in_the_users_order(gate):
    """Two branches, named in an order that is not depth-first, over pages of 48."""
    model, store = Model(make(page_size=48)), attn.Paged(page_size=48)
    parent = model.add()
    model.append([parent], [20])
    other = model.add()
    model.append([other], [9])
    model.branch(parent, 2)
    first, second = [leaf for leaf in model.leaves() if leaf != other]
    model.append([first, second], [3, 4])
    batch = model.cache.batch([first, other, second])
    kernel, gated = (attn.compile(spec(kv=[store], gate=each), device="host") for each in (None, gate))
    plan = gated.plan(batch)
    assert plan._order is not None
    q = draw(model.rng, 3, Q_HEADS, DIM)
    given = draw(model.rng, *(q.shape if gate == "elementwise" else q.shape[:2]))
    o = kernel.run(q, model.cache.layer(0), kernel.plan(batch)).astype(numpy.float64)
    factors = 1 / (1 + numpy.exp(-given.astype(numpy.float64)))
    wanted = o * (factors if gate == "elementwise" else factors[..., None])
    assert oracle.error(gated.run(q, model.cache.layer(0), plan, gate=given), wanted) < 2e-3
    if gate == "elementwise":
        with pytest.raises(attn.TensorError, match="out: overlaps 'gate'"):
            gated.run(q, model.cache.layer(0), plan, gate=given, out=given)
    # Quantized outputs are scattered as bytes.
    narrow = attn.compile(spec(kv=[store], gate=gate, output="fp8_e4m3"), device="host")
    plan, scale = narrow.plan(batch), numpy.array([2.0**-7], numpy.float32)
    codes = narrow.run(q, model.cache.layer(0), plan, gate=given, output_scale=scale)
    assert oracle.error(from_e4m3_bits(codes) * scale, wanted) < 6e-2
    torch = pytest.importorskip("torch")
    for out in (None, torch.empty(q.shape, dtype=torch.float8_e4m3fn)):
        named = {"gate": torch.from_numpy(given), "output_scale": torch.from_numpy(scale), "out": out}
        found = narrow.run(torch.from_numpy(q), model.cache.layer(0), plan, **named)
        assert found.dtype == torch.float8_e4m3fn and numpy.array_equal(found.view(torch.uint8), codes)
    # So are their scales.
    scaled = attn.compile(spec(kv=[store], gate=gate, output="fp8_e4m3", output_scales="head"), device="host")
    plan, into = scaled.plan(batch), numpy.zeros(q.shape[:2], numpy.float32)
    for named in ({}, {"output_scales": into}):
        codes, scales = scaled.run(q, model.cache.layer(0), plan, gate=given, **named)
        assert oracle.error(from_e4m3_bits(codes) * scales[..., None], wanted) < 6e-2
    assert scales is into
