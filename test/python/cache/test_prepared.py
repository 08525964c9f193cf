# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes that normalize and rotate keys and queries on the way into a cache, against float64."""

import itertools

import attn
import numpy
import pytest
from prepared_rows import angles, close, prepared, quantized_alike

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

LAYERS, POSITIONS = 2, 300
FORMATS = [
    {},
    {"key": "int8", "value": "int4"},
    {"key": "int4", "value": "int2", "key_group": 16, "value_group": 32},
    {"key": "fp8_e4m3", "value": "fp8_e5m2"},
    {"key": "fp8_e4m3", "value": "fp8_e4m3", "key_scales": "tensor", "value_scales": "head"},
    {"key": "mxfp8", "value": "mxfp4"},
    {"key": "nvfp4"},
]


def make(heads=2, dim=64, dtype="float16", page_size=16, **formats):
    sizes = dict(layers=LAYERS, pages=64, page_size=page_size, kv_heads=heads, head_dim=dim)
    return attn.PagedCache(**sizes, dtype=dtype, device="host", **formats)


def draw(rows, heads, dim, dtype, seed=0):
    found = torch.randn(rows, heads, dim, generator=torch.Generator().manual_seed(seed))
    return found.to(getattr(torch, dtype))


def rope_of(rotary_dim, dtype=torch.float32, interleaved=False, positions=POSITIONS, first=0):
    tables = (torch.tensor(x).to(dtype) for x in angles(positions, rotary_dim))
    return attn.Rope(*tables, interleaved=interleaved, first=first)


def norm_of(dim, dtype=torch.float32, epsilon=1e-5):
    k, q = (0.5 + torch.rand(2, dim, generator=torch.Generator().manual_seed(9))).to(dtype).unbind(0)
    return attn.Norm(k=k, q=q, epsilon=epsilon)


def numbers(tensor):
    return tensor.to(torch.float64).numpy()


def wanted(x, weight, rope, norm, positions):
    given = {}
    if norm is not None:
        given |= dict(weight=numbers(weight), epsilon=norm.epsilon)
    if rope is not None:
        given |= dict(
            cos=numbers(rope.cos), sin=numbers(rope.sin), positions=positions, interleaved=rope.interleaved,
            start=rope.first,
        )  # fmt: skip
    return prepared(numbers(x), **given)


def read_back(rows, formats, part):
    name = formats.get(part)
    if name is None:
        return rows
    options = {"group": formats.get(f"{part}_group"), "scales": formats.get(f"{part}_scales")}
    if options["scales"] in ("tensor", "head"):  # The caches' scales are 1.
        scale = numpy.ones(1 if options["scales"] == "tensor" else rows.shape[1], numpy.float32)
        raw = torch.tensor(rows, dtype=torch.float32).clamp(-448, 448).to(torch.float8_e4m3fn)
        return attn.dequantize(raw.view(torch.uint8).numpy(), scale, name, scales=options["scales"])
    return attn.dequantize(*attn.quantize(rows.astype(numpy.float32), name, **options), name, **options)


def stored(cache, layer, node, formats):
    """Keys and values of a node as numbers."""
    found = cache.layer(layer).stored(node)
    parts = []
    for letter, part in (("k", "key"), ("v", "value")):
        name = formats.get(part)
        codes = found[letter]
        if name is None:
            parts.append(numbers(codes))
            continue
        meta = next(found[key] for key in found if key in (f"{letter}_meta", f"{letter}_scales"))
        options = {"group": formats.get(f"{part}_group"), "scales": formats.get(f"{part}_scales")}
        decoded = attn.dequantize(codes, meta, name, **options)
        parts.append(numpy.asarray(decoded, numpy.float64))
    return parts


def check_write(cache, formats, rows, heads, q_heads, dim, dtype, rope, norm, first=0):
    """Append rows to a sequence with `first` tokens, prepared, and compare queries, keys and values."""
    node = cache.add()
    if first:
        cache.append(node, first).skip()
    change = cache.append(node, rows)
    positions = numpy.arange(first, first + rows)
    assert (change.positions == positions).all()
    for layer in range(LAYERS):
        k, v, q = (draw(rows, n, dim, dtype, layer + i) for i, n in ((10, heads), (20, heads), (30, q_heads)))
        before = q.clone()
        out = change.write(layer, k, v, q=q, rope=rope, norm=norm)
        assert torch.equal(q, before) and out.dtype == q.dtype
        assert close(numbers(out), wanted(q, norm and norm.q, rope, norm, positions), dtype)
        keys, values = (x[first:] for x in stored(cache, layer, node, formats))
        expected = wanted(k, norm and norm.k, rope, norm, positions)
        if "key" in formats:
            assert quantized_alike(keys, read_back(expected, formats, "key"))
        else:
            assert close(keys, expected, dtype)
        assert (values == read_back(numbers(v), formats, "value")).all()
    assert not change.missing and cache.clamped == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "formats", FORMATS, ids=lambda formats: "-".join(map(str, formats.values())) or "plain"
)
def test_formats(formats, dtype):
    cache = make(heads=3, dtype=dtype, **formats)
    check_write(cache, formats, 21, 3, 6, 64, dtype, rope_of(64), norm_of(64), first=37)


ROPES = [(128, 128), (128, 64), (80, 32), (96, 96), (256, 64), (80, 20), (64, 6), (24, 24), (8, 8)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim,rotary_dim", ROPES)
def test_rotations(dim, rotary_dim, interleaved):
    rope = rope_of(rotary_dim, interleaved=interleaved)
    check_write(make(heads=1, dim=dim), {}, 5, 1, 5, dim, "float16", rope, None, first=200)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim,rotary_dim,first", [(128, 64, 64), (192, 64, 128), (96, 20, 72), (512, 64, 448), (64, 6, 8)])  # fmt: skip
def test_rotations_of_any_range(dim, rotary_dim, first, interleaved):
    rope = rope_of(rotary_dim, interleaved=interleaved, first=first)
    check_write(make(heads=2, dim=dim), {}, 5, 2, 4, dim, "float16", rope, norm_of(dim), first=200)


@pytest.mark.parametrize("dim", [320, 384, 512, 576])
def test_heads_of_more_than_256_features(dim):
    value_dim = min(dim, 512) // 128 * 128 if dim > 320 else 256
    sizes = dict(layers=LAYERS, pages=8, page_size=16, kv_heads=2, head_dim=dim, value_dim=value_dim)
    cache = attn.PagedCache(**sizes, dtype="bfloat16", device="host")
    node, rope, norm = cache.add(), rope_of(dim, torch.bfloat16), norm_of(dim)
    k, v, q = (draw(5, n, d, "bfloat16", d) for n, d in ((2, dim), (2, value_dim), (6, dim)))
    change = cache.append(node, 5)
    for layer in range(LAYERS):
        out = change.write(layer, k, v, q=q, rope=rope, norm=norm)
    at = numpy.arange(5)
    assert close(numbers(out), wanted(q, norm.q, rope, norm, at), "bfloat16")
    keys, values = stored(cache, 1, node, {})
    assert close(keys, wanted(k, norm.k, rope, norm, at), "bfloat16") and (values == numbers(v)).all()


def make_latents(dim=576, value_dim=512, dtype="bfloat16", **sizes):
    sizes = dict(layers=LAYERS, pages=8, page_size=64, kv_heads=1, head_dim=dim) | sizes
    return attn.PagedCache(**sizes, value=attn.first(value_dim), dtype=dtype, device="host")


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim,value_dim", [(576, 512), (48, 32), (288, 256), (192, 128)])
def test_latents(dim, value_dim, interleaved):
    """A latent's value is normalized and the features after it turn, as do those of queries, in one launch."""
    cache = make_latents(dim, value_dim)
    turned, heads, rows = dim - value_dim, 7, 11
    rope = rope_of(turned, interleaved=interleaved, first=value_dim)
    norm = attn.Norm(k=norm_of(value_dim).k.bfloat16(), epsilon=1e-6)
    node = cache.add()
    cache.append(node, 60).skip()
    change = cache.append(node, rows)
    at = numpy.arange(60, 60 + rows)
    projected = draw(rows, heads, 128 + turned, "bfloat16", 1)
    absorbed = torch.full((rows, heads, dim), 7.0, dtype=torch.bfloat16)
    for layer in range(LAYERS):
        k = draw(rows, 1, dim, "bfloat16", layer + 2)
        given = projected[..., 128:], absorbed[..., value_dim:]
        assert change.write(layer, k, q=given[0], out=given[1], rope=rope, norm=norm) is given[1]
        turning = attn.Rope(rope.cos, rope.sin, interleaved=interleaved)
        assert close(numbers(given[1]), wanted(given[0], None, turning, None, at), "bfloat16")
        assert (absorbed[..., :value_dim] == 7).all()
        lines = numbers(cache.layer(layer).stored(node)["k"])[60:]
        assert close(lines, wanted(k, norm.k, rope, norm, at), "bfloat16")
    assert not change.missing


def test_latents_alone_in_place_and_in_steps():
    cache = make_latents(48, 32, dtype="float16")
    rope = rope_of(16, first=32)
    k, q = draw(3, 1, 48, "float16", 1), draw(3, 4, 16, "float16", 2)
    before, at, turning = q.clone(), numpy.arange(3), rope_of(16)
    node = cache.add()
    change = cache.append(node, 3)
    assert change.write(0, k, q=q, out=q, rope=rope) is q
    assert close(numbers(q), wanted(before, None, turning, None, at), "float16")
    assert change.write(1, k, norm=attn.Norm(k=torch.ones(32))) is None
    lines = numbers(cache.layer(1).stored(node)["k"])
    assert close(lines, wanted(k, torch.ones(32), None, attn.Norm(k=torch.ones(32)), at), "float16")
    spec = attn.Spec(
        q_heads=4, kv_heads=1, head_dim=48, dtype="float16", kv=[attn.Paged(page_size=64, value=attn.first(32))],
        see=attn.causal(), device_plan=True,
    )  # fmt: skip
    steps = cache.steps(attn.compile(spec, device="host"), sequences=2, rows=4, tokens=128)
    heads_first = draw(4, 4, 16, "float16", 3).transpose(0, 1).contiguous().transpose(0, 1)
    steps.append([node], [1])
    steps.update([node])
    out = torch.zeros(4, 4, 16, dtype=torch.float16)
    rows = draw(4, 1, 48, "float16", 4)
    for layer in range(LAYERS):
        steps.write(layer, rows, q=heads_first, out=out, rope=rope, positions=torch.tensor([3, 0, 0, 0]))
    steps.ran()
    assert close(numbers(out)[:1], wanted(heads_first[:1], None, turning, None, [3]), "float16")
    lines = numbers(cache.layer(1).stored(node)["k"])[3:]
    assert close(lines, wanted(rows[:1], None, rope, None, [3]), "float16")


def refuse_latents(kind, message, v=None, **given):
    cache = make_latents(48, 32, dtype="float16")
    change = cache.append(cache.add(), 4)
    with pytest.raises(kind, match=message):
        change.write(0, draw(4, 1, 48, "float16"), v, **given)
    assert change.missing == [0, 1]


def test_latents_refused():
    queries = draw(4, 4, 48, "float16")
    refuse_latents(attn.TensorError, r"q: expected float16 \[4, q_heads, 16\], got Tensor float16 \[4, 4, 48\]",
                   q=queries, rope=rope_of(16, first=32))  # fmt: skip
    refuse_latents(attn.SpecError, "rope: expected a Rope beside q, whose features turn, got None",
                   q=queries, norm=attn.Norm(k=torch.ones(32)))  # fmt: skip
    refuse_latents(attn.TensorError, "norm.q: expected None, as queries of latents have no norm",
                   norm=attn.Norm(k=torch.ones(32), q=torch.ones(48)))  # fmt: skip
    refuse_latents(attn.TensorError, r"norm.k: expected float32 or float16 \[32\], got Tensor float32 \[48\]",
                   norm=attn.Norm(k=torch.ones(48)))  # fmt: skip
    refuse_latents(attn.TensorError, "v: expected None, as values are the first 32 features of k",
                   v=queries, rope=rope_of(16))  # fmt: skip
    refuse_latents(attn.SpecError, r"rope.first: expected 32 rotated features within heads of 48, from 16 on at the "
                   r"latest, got 32; nearest legal: 16", rope=rope_of(32, first=32))  # fmt: skip
    refuse_latents(attn.TensorError, "q: expected tokens and heads a multiple of 16 bytes apart, and features side by side",
                   q=queries[..., 3:19], rope=rope_of(16, first=32))  # fmt: skip


@pytest.mark.parametrize("dim", [8, 24, 64, 80, 96, 192, 256])
def test_norms(dim):
    check_write(make(heads=2, dim=dim), {}, 3, 2, 4, dim, "float16", None, norm_of(dim))


@pytest.mark.parametrize("page_size,heads,q_heads", [(1, 5, 5), (32, 1, 9), (256, 7, 7), (8, 9, 27)])
def test_pages_and_heads(page_size, heads, q_heads):
    formats = {"key": "int8", "value": "int8"}
    cache = make(heads=heads, dim=80, page_size=page_size, **formats)
    check_write(cache, formats, 11, heads, q_heads, 80, "float16", rope_of(64), norm_of(80))


@pytest.mark.parametrize("form", [None, "fp8_e4m3", "int8_int4"])
@pytest.mark.parametrize(
    "heads,q_heads,dim", [(10, 10, 128), (4, 28, 128), (6, 18, 128), (3, 9, 256), (14, 14, 96), (12, 60, 64)]
)
def test_heads_that_fill_no_piece(form, heads, q_heads, dim):
    """A warp has several loads of heads, of which the last warp of a row has fewer. Nothing is written past them."""
    from attn.serving import Layer, Tokens, write_tokens

    page, rows, slots = 16, 3, [5, 12, 30]
    k, v, q = (
        draw(rows + 1, count, dim, "float16", seed) for seed, count in enumerate((heads, heads, q_heads))
    )
    out = torch.full_like(q, 7)
    tokens = Tokens(torch.tensor(slots), torch.tensor([4, 0, 9]))
    given = dict(q=q[:rows], out=out[:rows], rope=rope_of(dim), norm=norm_of(dim))
    if form == "int8_int4":
        layer = Layer(
            q_heads=heads, kv_heads=heads, head_dim=dim, dtype=torch.float16, page_size=page, format=form
        )
        memory = torch.zeros(3, heads, page, layer.token_bytes, dtype=torch.uint8)
        pages = layer.pages(memory)
        pages.write(k[:rows], v[:rows], tokens, **given)
        parts = [part.reshape(3, heads, page, -1) != 0 for part in pages.named.values()]
        written = torch.cat(parts, -1).transpose(1, 2).reshape(3 * page, heads, -1)
    else:
        dtype = getattr(torch, "float8_e4m3fn" if form else "float16")
        pools = [torch.zeros(3, page, heads, dim, dtype=dtype) for _ in "kv"]
        scales = dict(k_scale=torch.ones(1), v_scale=torch.ones(1)) if form else {}
        write_tokens(*pools, k[:rows], v[:rows], tokens, **given, **scales)
        written = torch.cat([pool.view(3 * page, heads, dim).to(torch.float32) for pool in pools], -1)
        tolerance = dict(rtol=2**-4, atol=2**-9) if form else dict(rtol=0, atol=0)
        torch.testing.assert_close(written[slots, :, dim:], v[:rows].float(), **tolerance)
    others = [slot for slot in range(3 * page) if slot not in slots]
    assert not written[others].any() and bool(written[slots].any(-1).all())
    assert close(
        numbers(out[:rows]),
        wanted(q[:rows], given["norm"].q, given["rope"], given["norm"], [4, 0, 9]),
        "float16",
    )
    assert bool((out[rows:] == 7).all())


def test_tables_and_weights_of_the_dtype():
    dtype = torch.bfloat16
    cache = make(dim=96, dtype="bfloat16")
    check_write(cache, {}, 9, 2, 2, 96, "bfloat16", rope_of(48, dtype), norm_of(96, dtype))
    check_write(cache, {}, 9, 2, 2, 96, "bfloat16", rope_of(36, dtype, True), None)


def test_large_and_small_numbers():
    """Epsilon counts where numbers are small; squares of large ones do not overflow."""
    cache = make()
    change = cache.append(cache.add(), 4)
    k, v, q = (draw(4, 2, 64, "float16", seed) for seed in range(3))
    k[0], k[1], k[2] = k[0] * 2.0**-12, k[1] * 8192, 0
    norm = norm_of(64, epsilon=1e-6)
    change.write(0, k, v, q=q, norm=norm)
    keys = stored(cache, 0, cache.sequences[0], {})[0]
    assert close(keys, wanted(k, norm.k, None, norm, None), "float16") and not keys[2].any()


def test_rows_of_a_fused_projection_and_queries_in_place():
    fused = draw(7, 8, 64, "float16")  # 4 heads of queries, 2 of keys, 2 of values.
    q, k, v = fused[:, :4], fused[:, 4:6], fused[:, 6:]
    rope, norm, before = rope_of(64), norm_of(64), fused.clone()
    cache = make()
    node = cache.add()
    change = cache.append(node, 7)
    assert change.write(0, k, v, q=q, out=q, rope=rope, norm=norm) is q
    at = numpy.arange(7)
    assert close(numbers(q), wanted(before[:, :4], norm.q, rope, norm, at), "float16")
    assert close(stored(cache, 0, node, {})[0], wanted(k, norm.k, rope, norm, at), "float16")
    assert torch.equal(fused[:, 4:], before[:, 4:])


def test_keys_alone_and_positions_of_the_caller():
    cache, rope = make(), rope_of(64)
    k, v = draw(3, 2, 64, "float16", 1), draw(3, 2, 64, "float16", 2)
    for dtype, given in itertools.product((torch.int32, torch.int64), ([299, 0, 7],)):
        node = cache.add()
        change = cache.append(node, 3)
        assert change.write(0, k, v, rope=rope, positions=torch.tensor(given, dtype=dtype)) is None
        change.write(1, k, v)
        assert close(stored(cache, 0, node, {})[0], wanted(k, None, rope, None, given), "float16")
        assert torch.equal(cache.layer(1).stored(node)["k"], k)


def test_positions_of_trees_and_drafts():
    cache = make()
    root, other = cache.add(), cache.add()
    change = cache.append([root, other], [5, 2])
    assert change.positions.tolist() == [0, 1, 2, 3, 4, 0, 1]
    change.skip()
    change = cache.append([other, root], [1, 2])
    assert change.positions.tolist() == [2, 5, 6]
    change.skip()
    _, change = cache.apply(append=other, tokens=1, branch=[(root, 2, 3)])
    assert change.positions.tolist() == [3, 7, 8, 9, 7, 8, 9]
    change.skip()
    assert cache.speculate(other, [-1, 0, 0, 1]).positions.tolist() == [4, 5, 5, 6]


@pytest.mark.parametrize("q_heads", [3, 6, 12])
def test_classes_with_stores_of_their_own(q_heads):
    classes = [attn.CacheClass(name="all", pages=8, heads=1), attn.CacheClass(name="few", pages=8, heads=2)]
    cache = attn.PagedCache(
        layers=1, page_size=16, kv_heads=3, head_dim=64, dtype="float16", device="host", classes=classes
    )
    k, v, q = draw(4, 3, 64, "float16", 1), draw(4, 3, 64, "float16", 2), draw(4, q_heads, 64, "float16", 3)
    rope, node, at = rope_of(64), cache.add(), numpy.arange(4)
    out = cache.append(node, 4).write(0, k, v, q=q, rope=rope, classes=[1, 0, 1])
    assert close(numbers(out), wanted(q, None, rope, None, at), "float16")
    for index, heads in ((0, [1]), (1, [0, 2])):
        keys = cache.layer(0).stored(node, index)["k"]
        assert close(numbers(keys), wanted(k[:, heads], None, rope, None, at), "float16")
    with pytest.raises(attn.TensorError, match=r"q: expected \[4, a multiple of 3 heads, 64\]"):
        cache.append(node, 4).write(0, k, v, q=q[:, :2], rope=rope, classes=[1, 0, 1])


def test_steps():
    spec = attn.Spec(
        q_heads=4, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Paged()], see=attn.causal(), device_plan=True
    )  # fmt: skip
    cache = make()
    steps = cache.steps(attn.compile(spec, device="host"), sequences=2, rows=9, tokens=64)
    k, v, q = draw(9, 2, 64, "float16", 1), draw(9, 2, 64, "float16", 2), draw(9, 4, 64, "float16", 3)
    rope, norm, out = rope_of(64), norm_of(64), torch.zeros(9, 4, 64, dtype=torch.float16)
    a, b = cache.add(), cache.add()
    steps.append([a, b], [4, 1])
    steps.update([(a, 4), b])
    at = torch.tensor([0, 1, 2, 3, 0, 299, 299, 299, 299])
    for layer in range(LAYERS):
        steps.write(layer, k, v, q=q, out=out, rope=rope, norm=norm, positions=at)
    steps.ran()
    assert close(numbers(out)[:5], wanted(q[:5], norm.q, rope, norm, at[:5].numpy()), "float16")
    assert not out[5:].any()
    assert close(stored(cache, 1, a, {})[0], wanted(k[:4], norm.k, rope, norm, at[:4].numpy()), "float16")
    with pytest.raises(
        attn.PlanError, match=r"positions: expected int32 or int64 \[9\] beside rope, got None"
    ):
        steps.write(0, k, v, rope=rope)


def refused(kind, message, **given):
    cache = make()
    change = cache.append(cache.add(), 4)
    rows = dict(k=draw(4, 2, 64, "float16"), v=draw(4, 2, 64, "float16"))
    before = [x.clone() for x in (cache.layer(0).k, cache.layer(0).v)]
    with pytest.raises(kind, match=message):
        change.write(0, **rows | given)
    assert change.missing == [0, 1]
    assert all(torch.equal(x.nan_to_num(7), y.nan_to_num(7)) for x, y in zip((cache.layer(0).k, cache.layer(0).v), before, strict=True))  # fmt: skip


def test_refusals():
    queries = draw(4, 4, 64, "float16")
    refused(
        attn.TensorError,
        r"rope.cos: expected tables of at least 4 positions, for the token at position 3, got Tensor float32 \[3, 32\]; "
        r"nearest legal: \[4, 32\]",
        rope=rope_of(64, positions=3),
    )
    refused(
        attn.TensorError,
        r"rope.cos: expected cosines of at most 32 angles, for heads of 64 features, got Tensor float32 \[300, 40\]; "
        r"nearest legal: \[300, 32\]",
        rope=rope_of(80),
    )
    refused(attn.TensorError, r"positions: expected numbers from 0 on, got -1; nearest legal: 0",
            rope=rope_of(64), positions=torch.tensor([0, -1, 2, 3]))  # fmt: skip
    refused(attn.TensorError, r"positions: expected int32 or int64 \[4\], got Tensor float32 \[4\]",
            rope=rope_of(64), positions=torch.zeros(4))  # fmt: skip
    refused(attn.TensorError, r"q: expected float16 \[4, q_heads, 64\], got Tensor float16 \[3, 4, 64\]",
            rope=rope_of(64), q=queries[:3])  # fmt: skip
    refused(attn.TensorError, r"norm.q: expected weights \[64\] beside q, got None",
            norm=attn.Norm(k=torch.ones(64)), q=queries)  # fmt: skip
    refused(attn.TensorError, r"norm.k: expected float32 or float16 \[64\], got Tensor float32 \[32\]",
            norm=attn.Norm(k=torch.ones(32)))  # fmt: skip
    refused(attn.TensorError, r"rope.cos: expected float32 or float16 \[300, 32\], got Tensor bfloat16",
            rope=rope_of(64, torch.bfloat16))  # fmt: skip
    refused(attn.SpecError, r"rope: expected a Rope, or a Norm as norm, beside q, got None", q=queries)
    refused(attn.SpecError, r"rope: expected attn.Rope or None, got 1.0", rope=1.0)
    refused(attn.TensorError, r"k: expected heads of a token in one piece, .* nearest legal: its .contiguous\(\) copy",
            rope=rope_of(64), k=draw(2, 4, 64, "float16").transpose(0, 1))  # fmt: skip


def test_tables_refused():
    table = torch.ones(4, 32)
    with pytest.raises(attn.TensorError, match=r"rope.sin: expected the shape of cos, \[4, 32\], got"):
        attn.Rope(table, table[:2])
    with pytest.raises(attn.TensorError, match=r"rope.cos: expected \[positions, rotary_dim / 2\], got"):
        attn.Rope(table[0], table[0])
    for first, nearest in ((12, 16), (-8, 0), (3, 0)):
        message = rf"rope.first: expected a multiple of 8 from 0 on, got {first}; nearest legal: {nearest}"
        with pytest.raises(attn.SpecError, match=message):
            attn.Rope(table, table, first=first)
    with pytest.raises(attn.SpecError, match=r"norm.epsilon: expected a finite number from 0 on, got -1"):
        attn.Norm(k=torch.ones(64), epsilon=-1)
