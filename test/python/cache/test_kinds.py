# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches whose layers are of several kinds: other heads, dims, formats and windows in one cache, one kernel and one plan for
each kind, against float64 over lists of tokens."""

import re

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import LayerKind, PlanError
from paged_model import draw  # noqa: E402

WINDOW, PAGE = 40, 48
NEAR = dict(name="near", layers=[0, 1, 3], pages=40, kv_heads=2, head_dim=64, recent=WINDOW)
FAR = dict(name="far", layers=[2, 4], pages=20, kv_heads=1, head_dim=128, value_dim=96)
Q_HEADS = 4


def make(near=(), far=(), **changes):
    kinds = [LayerKind(**NEAR | dict(near)), LayerKind(**FAR | dict(far))]
    return attn.PagedCache(**dict(kinds=kinds, page_size=PAGE, dtype="float16", device="host") | changes)


def kernel_of(kind, see, **formats):
    spec = attn.Spec(
        q_heads=Q_HEADS,
        kv_heads=kind["kv_heads"],
        head_dim=kind["head_dim"],
        value_dim=kind.get("value_dim"),
        dtype="float16",
        kv=[attn.Paged(name=kind["name"], page_size=PAGE, **formats)],
        see=see,
    )
    return attn.compile(spec, device="host")


class Model:
    """A cache beside lists of each sequence's tokens: for each layer keys and values, as they were given."""

    def __init__(self, cache, kernels, read=lambda part, rows: rows):
        self.cache, self.kernels, self.read = cache, kernels, read
        self.rng, self.held = numpy.random.default_rng(0), {}

    def add(self):
        node = self.cache.add()
        self.held[node] = [None] * 5
        return node

    def append(self, nodes, counts):
        change = self.cache.append(nodes, counts)
        for layer in range(5):
            kind = NEAR if layer in NEAR["layers"] else FAR
            k, v = (
                draw(self.rng, sum(counts), kind["kv_heads"], kind.get(dim, kind["head_dim"]))
                for dim in ("head_dim", "value_dim")
            )
            change.write(layer, k, v)
            ends = numpy.cumsum(counts)[:-1]
            for node, *new in zip(nodes, numpy.split(k, ends), numpy.split(v, ends), strict=True):
                old = self.held[node][layer] or [x[:0] for x in new]
                self.held[node][layer] = [numpy.concatenate(pair) for pair in zip(old, new, strict=True)]

    def check(self, requests):
        batch = self.cache.batch(requests)
        plans = {name: kernel.plan(batch) for name, kernel in self.kernels.items()}
        for layer in range(5):
            kind = NEAR if layer in NEAR["layers"] else FAR
            name = kind["name"]
            q = draw(self.rng, batch.rows, Q_HEADS, kind["head_dim"])
            out = self.kernels[name].run(q, self.cache.layer(layer), plans[name])
            row = 0
            for node, rows in requests:
                k, v = (
                    self.read((name, part), x) for part, x in zip("kv", self.held[node][layer], strict=True)
                )
                for end in range(len(k) - rows + 1, len(k) + 1):
                    first = max(end - WINDOW, 0) if name == "near" else 0
                    o, _ = oracle.attend(q[row], k[first:end], v[first:end])
                    assert oracle.error(out[row], o) < 2e-3
                    row += 1


@pytest.fixture(scope="module")
def kernels():
    return {
        "near": kernel_of(NEAR, attn.causal() & attn.recent(WINDOW)),
        "far": kernel_of(FAR, attn.causal()),
    }


def test_sequences_of_one_cache(kernels):
    """Prompts in chunks, decoding, a fork and a cut; windowed layers give pages back."""
    model = Model(make(), kernels)
    a, b = model.add(), model.add()
    model.append([a, b], [PAGE - 1, 5])
    model.check([(a, PAGE - 1), (b, 2)])
    for counts in ([3, 70], [60, 1], [1, 1], [1, 1]):
        model.append([a, b], counts)
        model.check([(a, min(counts[0], 9)), (b, counts[1])])
    twin = model.cache.fork(a)
    model.held[twin] = list(model.held[a])
    model.append([a, twin], [2, 5])
    model.check([(a, 1), (twin, 3), (b, 1)])
    model.cache.truncate(b, 3)
    model.held[b] = [[x[:-3] for x in parts] for parts in model.held[b]]
    model.append([b], [130])
    model.append([b], [1])
    model.check([(b, 1), (a, 1)])
    held = {name: pages - model.cache.free_pages(name) for name, pages in (("near", 40), ("far", 20))}
    assert held["far"] - held["near"] >= 2, held
    model.cache.prune(a, b, twin)
    assert model.cache.free_pages("near") == 40 and model.cache.free_pages("far") == 20


def test_one_plan_serves_the_layers_of_a_kind(kernels):
    model = Model(make(), kernels)
    a = model.add()
    model.append([a], [20])
    batch = model.cache.batch([a])
    plan = kernels["near"].plan(batch)
    for _ in range(5):
        model.append([a], [1])
        batch.update()
        plan.update()
        q = draw(model.rng, 1, Q_HEADS, 64)
        for layer in NEAR["layers"]:
            out = kernels["near"].run(q, model.cache.layer(layer), plan)
            o, _ = oracle.attend(q[0], *(x[-WINDOW:] for x in model.held[a][layer]))
            assert oracle.error(out[0], o) < 2e-3


def test_branches_and_drafts(kernels):
    """Two answers to a prompt, and a tree of drafts that windowed layers see in their rings."""
    model = Model(make(near=dict(draft=8)), kernels)
    a = model.add()
    model.append([a], [2 * PAGE])
    left, right = model.cache.branch(a, 2)
    for node in (left, right):
        model.held[node] = list(model.held[a])
    model.append([left, right], [3, 50])
    model.check([(right, 2), (left, 1)])
    b = model.add()
    model.append([b], [PAGE + 2])
    change = model.cache.speculate(b, [-1, 0, 0])
    drafts = {}
    for layer in range(5):
        kind = NEAR if layer in NEAR["layers"] else FAR
        drafts[layer] = [
            draw(model.rng, 3, kind["kv_heads"], kind.get(dim, kind["head_dim"]))
            for dim in ("head_dim", "value_dim")
        ]
        change.write(layer, *drafts[layer])
    batch = model.cache.batch([(b, 0, True)])
    for layer, name in ((1, "near"), (4, "far")):
        q = draw(model.rng, 3, Q_HEADS, 64 if name == "near" else 128)
        out = kernels[name].run(q, model.cache.layer(layer), kernels[name].plan(batch))
        for row, path in enumerate(([0], [0, 1], [0, 2])):
            tokens = [
                numpy.concatenate([old, new[path]])
                for old, new in zip(model.held[b][layer], drafts[layer], strict=True)
            ]
            seen = [x[-WINDOW:] if name == "near" else x for x in tokens]
            o, _ = oracle.attend(q[row], *seen)
            assert oracle.error(out[row], o) < 2e-3
    model.cache.commit(b, 2)
    for layer in range(5):
        parts = zip(model.held[b][layer], drafts[layer], strict=True)
        model.held[b][layer] = [numpy.concatenate([old, new[[0, 2]]]) for old, new in parts]
    model.append([b], [1])
    model.check([(b, 1), (left, 1)])


def test_kinds_have_formats_of_their_own():
    formats = dict(key="int8", value="int4")
    kernels = {
        "near": kernel_of(NEAR, attn.causal() & attn.recent(WINDOW), key="fp8_e4m3", value="fp8_e4m3"),
        "far": kernel_of(FAR, attn.causal(), **formats),
    }

    def read(which, rows):
        name = formats["key" if which[1] == "k" else "value"] if which[0] == "far" else "fp8_e4m3"
        return attn.dequantize(*attn.quantize(rows, name), name)

    cache = make(near=dict(key="fp8_e4m3", value="fp8_e4m3"), far=formats)
    model = Model(cache, kernels, read)
    a, b = model.add(), model.add()
    model.append([a, b], [PAGE + 3, 7])
    model.append([a, b], [1, 30])
    model.check([(a, 3), (b, 12)])
    twin = cache.fork(a)
    model.held[twin] = list(model.held[a])
    model.append([a, twin], [1, 1])
    model.check([(twin, 2), (a, 1)])
    assert "near 3 x 2 heads of 64 in key='fp8_e4m3'" in repr(cache), repr(cache)
    # Near: two lines of 64 bytes with a scale each. Far: 128 and 48 bytes, each with a scale and a zero point.
    assert cache.token_bytes == 3 * 2 * 2 * (64 + 4) + 2 * (128 + 4 + 48 + 4)


def test_latents_beside_keys_and_values():
    """A kind of latents has no values of its own; keys of the other kind turn as they are written."""
    latent = dict(name="latent", layers=[1], pages=9, kv_heads=1, head_dim=80, value=attn.first(64))
    near = NEAR | dict(layers=[0])
    cache = make(kinds=[LayerKind(**near), LayerKind(**latent)])
    assert cache.is_latent and "latent 1 x 1 heads of 80 in value=attn.first(64)" in repr(cache)
    rng, node = numpy.random.default_rng(5), cache.add()
    angles = numpy.arange(60)[:, None] / 10.0 ** numpy.arange(32)
    cos, sin = numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)
    change = cache.append([node], [60])
    k, v = (draw(rng, 60, 2, 64) for _ in range(2))
    lines = draw(rng, 60, 1, 80)
    change.write(0, k, v, rope=attn.Rope(cos, sin))
    with pytest.raises(attn.TensorError, match="v: expected None, as values are the first 64 features of k"):
        change.write(1, lines, lines)
    change.write(1, lines)
    x, y = k[..., :32].astype(float), k[..., 32:].astype(float)
    cos, sin = cos[:, None], sin[:, None]
    turned = numpy.concatenate([x * cos - y * sin, y * cos + x * sin], -1)
    assert numpy.abs(numpy.asarray(cache.layer(0).stored(node)["k"]).astype(float) - turned).max() < 4e-3
    kernel = kernel_of(latent, attn.causal(), value=attn.first(64))
    q = draw(rng, 1, Q_HEADS, 80)
    out = kernel.run(q, cache.layer(1), kernel.plan(cache.batch([node])))
    o, _ = oracle.attend(q[0], lines, lines[..., :64])
    assert oracle.error(out[0], o) < 2e-3


def test_tokens_are_copied_to_fewer_bits():
    """requantize compares the kinds of both caches, and copies each kind's layers."""
    source, target = make(), make(far=dict(key="int8", value="int8"))
    model = Model(source, {})
    a = model.add()
    model.append([a], [30])
    node = target.requantize(source, a)
    assert target.tokens(node) == 30
    k, v = model.held[a][2]
    stored = target.layer(2).stored(node)
    for part, rows in (("k", k), ("v", v)):
        codes, _ = attn.quantize(rows, "int8")
        assert numpy.array_equal(numpy.asarray(stored[part]).reshape(codes.shape), codes)
    assert numpy.array_equal(numpy.asarray(target.layer(0).stored(node)["k"]), model.held[a][0][0])
    with pytest.raises(PlanError, match="source: expected head_dim"):
        make(near=dict(head_dim=128)).requantize(source, a)


@pytest.mark.parametrize(
    "make_it, message",
    [
        (lambda: make(near=dict(layers=[0, 1])), "kinds: layer 3 is of no kind; 4 is the last layer"),
        (lambda: make(near=dict(layers=[0, 1, 2, 3])), "kinds: layer 2 is of near and of far"),
        (lambda: make(near=dict(layers=[])), "kinds: near: expected one layer or more, got none"),
        (lambda: make(near=dict(name="far")), "kinds: expected kinds of different names, got 'far'"),
        (lambda: make(near=dict(kv_heads=0)), "near.kv_heads: expected a whole number from 1"),
        (lambda: make(kinds=["near"]), "kinds: expected attn.LayerKind"),
        (lambda: make(layers=5), "layers: expected none beside kinds of layers"),
        (lambda: make(key="int8"), "key: expected none beside kinds"),
        (lambda: make(pages=5), "pages: expected none beside kinds"),
        (
            lambda: make(draft_page=1),
            "draft_page: expected page_size, 48, beside kinds of layers, got 1",
        ),
        (lambda: make(page_size=24), "page_size: .*nearest legal: 16 or 32"),
        (lambda: make(far=dict(value="int2")), "value"),
    ],
)
def test_caches_that_cannot_be(make_it, message):
    with pytest.raises(attn.Error, match=message):
        make_it()


def test_layers_of_another_kind_are_refused(kernels):
    model = Model(make(), kernels)
    a = model.add()
    model.append([a], [7])
    batch = model.cache.batch([a])
    plan = kernels["near"].plan(batch)
    q = draw(model.rng, 1, Q_HEADS, 64)
    with pytest.raises(attn.TensorError, match="layer 2 is of far, and near is asked for"):
        kernels["near"].run(q, model.cache.layer(2), plan)
    other = kernel_of(FAR | dict(name="kv"), attn.causal())
    with pytest.raises(PlanError, match="kv: shows no kind of layers, and the cache has layers of near, far"):
        other.plan(batch)
    wrong = kernel_of(FAR | dict(name="near"), attn.causal())
    with pytest.raises(PlanError, match="near: the kernel has kv_heads=1, and the cache kv_heads=2"):
        wrong.plan(batch)
    far_sighted = kernel_of(NEAR, attn.causal())
    model.append([a], [100])
    model.append([a], [1])
    with pytest.raises(PlanError, match=re.escape("expected no more than attn.causal() & attn.recent(40)")):
        far_sighted.plan(model.cache.batch([a]))
    with pytest.raises(PlanError, match="near: the kernel sees tokens that these layers give back"):
        kernels["near"].plan(model.cache.batch([a], ends=[WINDOW + 1]))
    kernels["near"].plan(model.cache.batch([a], ends=[WINDOW - 1]))
    change = model.cache.append([a], [2])
    with pytest.raises(PlanError, match="layers: expected layers of one kind, got near, far"):
        change.write_all(draw(model.rng, 5, 2, 2, 64), draw(model.rng, 5, 2, 2, 64))
    with pytest.raises(attn.TensorError, match=re.escape("k: expected float16 [2, 1, 128]")):
        change.write(2, draw(model.rng, 2, 2, 64), draw(model.rng, 2, 2, 64))
    model.cache.rollback()
    with pytest.raises(PlanError, match="steps: the cache has a store for each kind of layers"):
        model.cache.steps(kernels["near"], sequences=1, rows=1, tokens=64)
