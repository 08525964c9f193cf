# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A paged cache of latents: appended lines, forks, steps captured once, refusals. Attention sees their tokens."""

import sys

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

DIM, VALUES, HEADS = 80, 64, 4
SIZES = dict(q_heads=HEADS, kv_heads=1, head_dim=DIM, dtype="float16", see=attn.causal())


def make(**changes):
    given = dict(layers=2, pages=16, kv_heads=1, head_dim=DIM, value=attn.first(VALUES), dtype="float16")
    return attn.PagedCache(**(given | dict(device="host") | changes))


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(numpy.float16)


def expected(q, lines):
    """Attention of the last rows over lines [tokens, DIM], in float64."""
    keys, rows = lines.astype(float), len(q)
    scores = numpy.einsum("rhd,td->rht", q.astype(float), keys) / DIM**0.5
    token, last = numpy.arange(len(keys)), len(keys) - rows + numpy.arange(rows)
    scores = numpy.where(token[None, None] <= last[:, None, None], scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.einsum("rht,td->rhd", weights / weights.sum(-1, keepdims=True), keys[:, :VALUES])


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(attn.Spec(**SIZES, kv=[attn.Paged(value=attn.first(VALUES))]), device="host")


def test_appended_lines_are_seen(kernel):
    rng, cache = numpy.random.default_rng(0), make()
    assert cache.token_bytes == 2 * 2 * DIM and "value=attn.first(64)" in repr(cache)
    node = cache.add()
    lines = draw(rng, 2, 37, 1, DIM)
    change = cache.append(node, 37)
    change.write(0, lines[0])
    change.write(1, lines[1])
    stored = cache.layer(1).stored(node)
    assert not change.missing and list(stored) == ["k"] and numpy.array_equal(stored["k"], lines[1])
    twin = cache.fork(node)
    new = draw(rng, 2, 1, 1, DIM)
    cache.append(twin, 1).write_all(new)
    for layer in (0, 1):
        for leaf, own in ((node, lines[layer]), (twin, numpy.concatenate([lines[layer], new[layer]]))):
            plan = kernel.plan(cache.batch([(leaf, 3)]))
            q = draw(rng, 3, HEADS, DIM)
            out = kernel.run(q, cache.layer(layer), plan)
            numpy.testing.assert_allclose(out, expected(q, own[:, 0]), atol=3e-3)
    layer = cache.layer(1)
    assert layer.k.shape[-1] == DIM and layer.v.shape[-1] == VALUES and list(layer.tensors()) == ["k_pages"]
    assert numpy.shares_memory(numpy.asarray(layer.k), numpy.asarray(layer.v))


def test_the_kernel_writes_the_same_lines():
    """The kernels that change a cache on a GPU, on the host device: append and move."""
    from attn.cache.operations import Shape, append_text, move_text
    from attn.memory.formats import Format

    shape = Shape(4, 16, 576, 512, "bf16", "host", Format("bf16"), Format("bf16"), latent=True)
    for text in (append_text(1, shape), move_text(1, shape)):
        assert "value = first<512>" in text and "%v" not in text


def test_what_is_refused(kernel):
    cache = make()
    node = cache.add()
    lines = numpy.zeros((3, 1, DIM), numpy.float16)
    change = cache.append(node, 3)
    with pytest.raises(attn.TensorError, match="v: expected None, as values are the first 64 features of k"):
        change.write_all(lines[None].repeat(2, 0), lines[None].repeat(2, 0))
    change.write_all(lines[None].repeat(2, 0))
    with pytest.raises(attn.PlanError, match="value: expected .* n up to 80, .* got 128; nearest legal: 80"):
        make(value=attn.first(128))
    with pytest.raises(attn.PlanError, match="value_dim: expected None, or 64"):
        make(value_dim=48)
    with pytest.raises(
        attn.PlanError, match="key: expected None, 'fp8_e4m3' or 'fp8_ds_mla' where values are a part"
    ):
        make(key="int8")
    with pytest.raises(attn.PlanError, match="value_scales: expected None"):
        make(key="fp8_e4m3", value_scales="head")
    apart = make(value=None, value_dim=VALUES)
    wants = r"the kernel has value=attn.first\(64\), and the cache values apart from keys"
    with pytest.raises(attn.PlanError, match=wants):
        kernel.plan(apart.batch([apart.add()]))
    other = attn.compile(attn.Spec(**SIZES, value_dim=VALUES, kv=[attn.Paged()]), device="host")
    with pytest.raises(attn.PlanError, match=r"values apart from keys, and the cache value=attn.first\(64\)"):
        other.plan(cache.batch([node]))
    with pytest.raises(attn.PlanError, match="expected caches with values apart from keys"):
        make(value=None, value_dim=VALUES).requantize(cache, node)


def test_steps_that_are_captured_once():
    """Appends of a step by its kernel, whose slots are in tables."""
    spec = attn.Spec(**SIZES, kv=[attn.Paged(value=attn.first(VALUES))], device_plan=True)
    kernel, cache, rng = attn.compile(spec, device="host"), make(layers=1), numpy.random.default_rng(3)
    node = cache.add()
    lines = draw(rng, 20, 1, DIM)
    cache.append(node, 20).write(0, lines)
    steps = cache.steps(kernel, sequences=1, rows=2, tokens=64)
    for _ in range(2):
        steps.append(node)
        steps.update([node])
        new, q = draw(rng, 2, 1, DIM), draw(rng, 2, HEADS, DIM)
        steps.write(0, new)
        out = kernel.run(q, cache.layer(0), steps.plan())
        steps.ran()
        lines = numpy.concatenate([lines, new[:1]])
        numpy.testing.assert_allclose(out[:1], expected(q[:1], lines[:, 0]), atol=3e-3)


@pytest.mark.parametrize("page", [16, 1])
def test_trees_of_drafts(page):
    """A tree of speculated lines is verified: each token sees its path. The accepted path is committed."""
    kv = [attn.Paged(value=attn.first(VALUES))]
    if page == 1:
        kv = [attn.Paged(name="nodes", value=attn.first(VALUES))]
        kv.append(attn.Paged(name="drafts", page_size=1, value=attn.first(VALUES)))
    kernel = attn.compile(attn.Spec(**SIZES, kv=kv), device="host")
    cache, rng = make(layers=1, **({"draft_page": 1} if page == 1 else {})), numpy.random.default_rng(5)
    node = cache.add()
    lines, tree, parents = draw(rng, 20, 1, DIM), draw(rng, 4, 1, DIM), [-1, 0, 0, 2]
    cache.append(node, 20).write(0, lines)
    cache.speculate(node, parents).write(0, tree)
    q = draw(rng, 5, HEADS, DIM)
    out = kernel.run(q, cache.layer(0), kernel.plan(cache.batch([(node, 1, True)])))
    paths = [[], [0], [0, 1], [0, 2], [0, 2, 3]]
    for row, path in enumerate(paths):
        seen = numpy.concatenate([lines, tree[path]])[:, 0]
        numpy.testing.assert_allclose(out[row : row + 1], expected(q[row : row + 1], seen), atol=3e-3)
    cache.commit(node, 3)
    out = kernel.run(q[:2], cache.layer(0), kernel.plan(cache.batch([(node, 2)])))
    kept = numpy.concatenate([lines, tree[[0, 2, 3]]])[:, 0]
    numpy.testing.assert_allclose(out, expected(q[:2], kept), atol=3e-3)


# --- Lines in 8 bits -----------------------------------------------------------------------------------------


def decoded(cache, layer, slots):
    """The numbers that stored lines stand for, [tokens, dim]."""
    tensors = dict(cache.layer(layer).tensors())
    torch = sys.modules.get("torch")
    if torch is not None:  # It made them.
        tensors["k_pages"] = tensors["k_pages"].view(torch.uint8)
    tensors = {name: numpy.asarray(tensor) for name, tensor in tensors.items()}
    codes = tensors["k_pages"].view(numpy.uint8)
    dim, bits = codes.shape[-1], numpy.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    table = numpy.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    numbers = numpy.where(bits < 128, table, -table)[codes]
    scales = tensors["k_scales"].astype(float)
    if scales.size > 1:  # by line: [pages, heads, page_size], and so the lines of a page
        return numbers.reshape(-1, dim)[slots] * scales.reshape(-1)[slots, None]
    return numbers.reshape(-1, dim)[slots] * scales


@pytest.mark.parametrize("dims", [(80, 64), (576, 512)])
@pytest.mark.parametrize("scales", ["tensor", "head", "token"])
def test_lines_in_8_bits(scales, dims):
    """A cache quantizes lines as it writes them; attention is that over what is stored, and each number is stored right."""
    if scales == "token" and dims[0] > 256:
        return
    dim, values = dims
    given = dict(q_heads=HEADS, kv_heads=1, head_dim=dim, dtype="float16", see=attn.causal())
    store = dict(key="fp8_e4m3", key_scales=scales, value=attn.first(values))
    kernel = attn.compile(attn.Spec(**given, kv=[attn.Paged(**store)]), device="host")
    rng, cache = numpy.random.default_rng(0), make(head_dim=dim, **store)
    assert cache.token_bytes == 2 * (dim + 4 * (scales == "token"))
    assert "value=attn.first" in repr(cache) and "fp8_e4m3" in repr(cache)
    node, lines = cache.add(), 3 * draw(rng, 2, 37, 1, dim)
    if scales != "token":
        for layer in (0, 1):
            cache.layer(layer).tensors()["k_scales"][...] = 0.05 * (1 + layer)
    cache.append(node, 37).write_all(lines)
    slots = cache.slots(node)
    twin = cache.fork(node)
    for layer in (0, 1):
        stored = decoded(cache, layer, slots)
        wanted = lines[layer, :, 0].astype(float)
        assert numpy.abs(stored - wanted).max() <= 2**-4 * numpy.abs(wanted).max()
        assert (numpy.abs(stored - wanted) <= 2**-4 * numpy.abs(wanted) + 2e-4).all()
        q = draw(rng, 3, HEADS, dim)
        out = kernel.run(q, cache.layer(layer), kernel.plan(cache.batch([(node, 3)])))
        of_twin = kernel.run(q, cache.layer(layer), kernel.plan(cache.batch([(twin, 3)])))
        assert numpy.array_equal(out, of_twin)
        keys = stored
        scores = numpy.einsum("rhd,td->rht", q.astype(float), keys) / dim**0.5
        token, last = numpy.arange(len(keys)), len(keys) - 3 + numpy.arange(3)
        scores = numpy.where(token[None, None] <= last[:, None, None], scores, -numpy.inf)
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        exact = numpy.einsum("rht,td->rhd", weights / weights.sum(-1, keepdims=True), keys[:, :values])
        error = numpy.linalg.norm(out - exact, axis=-1) / numpy.linalg.norm(exact, axis=-1)
        assert error.max() <= 2e-3


def decoded_lines(cache, layer, slots):
    """The numbers of lines of 656 bytes, [tokens, 576]."""
    lines = numpy.asarray(dict(cache.layer(layer).tensors())["k_pages"]).reshape(-1, 656)[slots]
    bits = numpy.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    table = numpy.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    codes = numpy.where(bits < 128, table, -table)[lines[:, :512]]
    scales = numpy.ascontiguousarray(lines[:, 512:528]).view(numpy.float32).astype(float)
    rest = numpy.ascontiguousarray(lines[:, 528:]).view(numpy.uint16).astype(numpy.uint32) << 16
    return numpy.concatenate(
        [codes * scales.repeat(128, axis=1), rest.view(numpy.float32).astype(float)], axis=1
    )


def bfloat16(numbers):
    """Numbers of bf16 and their bits."""
    bits = numpy.ascontiguousarray(numbers, numpy.float32).view(numpy.uint32) & 0xFFFF0000
    return bits.view(numpy.float32).astype(float), (bits >> 16).astype(numpy.uint16)


def numbers_of(bits):
    """The numbers of bits of bf16."""
    return (numpy.asarray(bits).view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def attended(q, stored):
    """Attention of the last rows over lines of 512 + 64 features, in float64."""
    scores = numpy.einsum("rhd,td->rht", q, stored) / 576**0.5
    token, last = numpy.arange(len(stored)), len(stored) - len(q) + numpy.arange(len(q))
    scores = numpy.where(token[None, None] <= last[:, None, None], scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.einsum("rht,td->rhd", weights / weights.sum(-1, keepdims=True), stored[:, :512])


def engines(layers=1, **options):
    """A kernel and a cache of lines as engines store them."""
    store = dict(key="fp8_ds_mla", value=attn.first(512))
    given = dict(q_heads=HEADS, kv_heads=1, head_dim=576, dtype="bfloat16", see=attn.causal())
    kernel = attn.compile(attn.Spec(**given, kv=[attn.Paged(**store)], **options), device="host")
    return kernel, make(head_dim=576, dtype="bfloat16", layers=layers, **store)


def test_drafts_of_engines_lines():
    """A tree of speculated lines is verified, and its path committed."""
    (kernel, cache), rng = engines(), numpy.random.default_rng(5)
    node, parents = cache.add(), [-1, 0, 0, 2]
    for count, write in ((20, lambda: cache.append(node, 20)), (4, lambda: cache.speculate(node, parents))):
        write().write(0, bfloat16(rng.standard_normal((count, 1, 576)))[1])
    q, bits = bfloat16(rng.standard_normal((5, HEADS, 576)))
    before = numbers_of(kernel.run(bits, cache.layer(0), kernel.plan(cache.batch([(node, 1, True)]))))
    cache.commit(node, 3)
    rows = [3, 4]
    after = numbers_of(
        kernel.run(numpy.ascontiguousarray(bits[rows]), cache.layer(0), kernel.plan(cache.batch([(node, 2)])))
    )
    numpy.testing.assert_allclose(after, before[rows], atol=2e-2)
    stored = decoded_lines(cache, 0, cache.slots(node))
    numpy.testing.assert_allclose(after, attended(q[rows], stored), atol=2e-2)


def test_steps_over_engines_lines():
    """Steps that are recorded once append lines and plan on the device."""
    (kernel, cache), rng = engines(device_plan=True), numpy.random.default_rng(3)
    node = cache.add()
    cache.append(node, 20).write(0, bfloat16(rng.standard_normal((20, 1, 576)))[1])
    steps = cache.steps(kernel, sequences=1, rows=2, tokens=64)
    for _ in range(2):
        steps.append(node)
        steps.update([node])
        q, bits = bfloat16(rng.standard_normal((2, HEADS, 576)))
        steps.write(0, bfloat16(rng.standard_normal((2, 1, 576)))[1])
        out = numbers_of(kernel.run(bits, cache.layer(0), steps.plan()))
        steps.ran()
        stored = decoded_lines(cache, 0, cache.slots(node))
        numpy.testing.assert_allclose(out[:1], attended(q[:1], stored), atol=2e-2)


def test_lines_of_engines():
    """512 e4m3 with a scale for each 128, found as lines are written, and 64 bf16; forks and copies take bytes."""
    (kernel, cache), rng, dim, values = engines(2), numpy.random.default_rng(0), 576, 512
    assert cache.token_bytes == 2 * 656 and "fp8_ds_mla" in repr(cache)
    sizes = numpy.array([1, 100, 1e-3, 1, 1]).repeat(128)[:dim]
    lines, bits = bfloat16(rng.standard_normal((2, 37, 1, dim)) * sizes)
    node = cache.add()
    cache.append(node, 37).write_all(bits)
    slots = cache.slots(node)
    twin = cache.fork(node)
    new, new_bits = bfloat16(rng.standard_normal((2, 1, 1, dim)) * sizes)
    cache.append(twin, 1).write_all(new_bits)
    longer = numpy.append(slots, cache.slots(twin)[-1])
    for layer in (0, 1):
        for leaf, own, places in (
            (node, lines[layer], slots),
            (twin, numpy.concatenate([lines[layer], new[layer]]), longer),
        ):
            stored, wanted = decoded_lines(cache, layer, places), own[:, 0]
            assert (abs(stored - wanted) <= 2**-4 * abs(wanted) + 1e-5 * sizes).all()
            assert (stored[:, values:] == wanted[:, values:]).all()
            q, q_bits = bfloat16(rng.standard_normal((3, HEADS, dim)) / 50)
            out = numbers_of(kernel.run(q_bits, cache.layer(layer), kernel.plan(cache.batch([(leaf, 3)]))))
            exact = attended(q, stored)
            for group in range(0, values, 128):
                part = slice(group, group + 128)
                error = numpy.linalg.norm(out[..., part] - exact[..., part], axis=-1)
                assert (error <= 5e-3 * numpy.linalg.norm(exact[..., part], axis=-1)).all()
    with pytest.raises(
        attn.PlanError, match="dtype: expected 'bfloat16' beside key='fp8_ds_mla', .* got 'float16'"
    ):
        make(head_dim=dim, key="fp8_ds_mla", value=attn.first(values))
    for apart in (dict(key="fp8_ds_mla", value=None), dict(value="fp8_ds_mla")):
        with pytest.raises(
            attn.PlanError, match=r"value: expected attn.first\(512\) beside key='fp8_ds_mla'"
        ):
            make(head_dim=dim, dtype="bfloat16", **apart)


def test_scales_of_long_lines_are_refused():
    """A warp's lanes find the scale of a line together, and have 256 features."""
    wants = "key_scales: expected 'tensor' or 'head' for lines of more than 256 features, got 'token'"
    for dim, value in ((576, 512), (272, 256)):
        with pytest.raises(attn.PlanError, match=wants):
            make(head_dim=dim, value=attn.first(value), key="fp8_e4m3")


def test_steps_over_lines_in_8_bits():
    store = dict(key="fp8_e4m3", key_scales="tensor", value=attn.first(VALUES))
    spec = attn.Spec(**SIZES, kv=[attn.Paged(**store)], device_plan=True)
    kernel, cache, rng = (
        attn.compile(spec, device="host"),
        make(layers=1, **store),
        numpy.random.default_rng(3),
    )
    node = cache.add()
    cache.append(node, 20).write(0, draw(rng, 20, 1, DIM))
    steps = cache.steps(kernel, sequences=1, rows=2, tokens=64)
    for _ in range(2):
        steps.append(node)
        steps.update([node])
        q = draw(rng, 2, HEADS, DIM)
        steps.write(0, draw(rng, 2, 1, DIM))
        out = kernel.run(q, cache.layer(0), steps.plan())
        steps.ran()
        stored = decoded(cache, 0, cache.slots(node))
        numpy.testing.assert_allclose(out[:1], expected(q[:1], stored), atol=3e-3)


def test_drafts_in_8_bits():
    """A tree of speculated lines in pages of the same size; its path is committed."""
    store = dict(key="fp8_e4m3", key_scales="tensor", value=attn.first(VALUES))
    kernel = attn.compile(attn.Spec(**SIZES, kv=[attn.Paged(**store)]), device="host")
    cache, rng = make(layers=1, **store), numpy.random.default_rng(5)
    node, parents = cache.add(), [-1, 0, 0, 2]
    cache.append(node, 20).write(0, draw(rng, 20, 1, DIM))
    cache.speculate(node, parents).write(0, draw(rng, 4, 1, DIM))
    q = draw(rng, 5, HEADS, DIM)
    before = kernel.run(q, cache.layer(0), kernel.plan(cache.batch([(node, 1, True)])))
    cache.commit(node, 3)
    after = kernel.run(q[[3, 4]], cache.layer(0), kernel.plan(cache.batch([(node, 2)])))
    numpy.testing.assert_allclose(after, before[[3, 4]], atol=3e-3)
    stored = decoded(cache, 0, cache.slots(node))
    numpy.testing.assert_allclose(after, expected(q[[3, 4]], stored), atol=3e-3)
